// SPDX-License-Identifier: Apache-2.0
#include "apps/tutorial/exercises/check/reference_run.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "apps/tutorial/exercises/exercise.h"
#include "lockstep/data/sampler.h"

namespace lockstep {
namespace {

constexpr int64_t samples = 2048;
constexpr int64_t features = 20;
constexpr float learning_rate = 1e-2f;

/// One rank's copy of the model.
struct Copy {
  Copy(const Job& job) : model(job.widths) {
    std::vector<NamedTensor> list = model.parameters("first.");
    if (!job.second_widths.empty()) {
      second = std::make_unique<Mlp>(job.second_widths);
      for (const NamedTensor& one : second->parameters("second.")) list.push_back(one);
    }
    initialize(list, job.seed);
    space = std::make_unique<ParameterSpace>(list);
    if (job.growth_interval > 0) space->set_precision(DType::f16);
    velocity.resize(static_cast<size_t>(space->layout.elements()));
  }

  Mlp model;
  std::unique_ptr<Mlp> second;
  std::unique_ptr<ParameterSpace> space;
  Numbers velocity;
};

class Run {
 public:
  Run(const Job& job, Mistake mistake) : job_(job), mistake_(mistake) {}

  std::vector<Point> start(const Start& start) {
    ranks_ = start.ranks;
    if (replicas_ == 0) replicas_ = job_.replicas == 0 ? ranks_ : job_.replicas;
    if (has(Mistake::replica_a_rank)) replicas_ = ranks_;
    points_.clear();
    const int64_t steps = steps_per_epoch();
    first_ = resume() * steps;
    // If the loader did not seek, steps count from the first one again.
    int64_t shift = has(Mistake::data_from_the_beginning) ? first_ : 0;
    if (has(Mistake::epochs_as_steps)) shift = first_ - first_ / steps;
    for (int64_t index = first_; index < start.until_epoch * steps; ++index) {
      take_step(index - shift);
      if (job_.evaluates && (index + 1) % steps == 0)
        points_.push_back({.step = index + 1, .is_evaluation = true, .loss = evaluation()});
    }
    epochs_run_ = start.until_epoch;
    return points_;
  }

 private:
  bool has(Mistake mistake) const { return mistake_ == mistake; }
  int ranks_of_a_node() const { return std::max(1, ranks_ / job_.nodes); }
  /// Returns how many ranks or replicas share the samples. share() returns the number of samples of each.
  int sharers() const {
    if (has(Mistake::not_shared)) return 1;
    return has(Mistake::samples_of_the_node) && job_.nodes > 1 ? ranks_of_a_node() : replicas_;
  }
  int64_t share() const {
    return (samples + (has(Mistake::samples_left_out) ? 0 : sharers() - 1)) / sharers();
  }
  int64_t steps_per_epoch() const { return (share() + job_.batch_size - 1) / job_.batch_size; }

  /// Makes the copies of this start from its snapshot. Returns the number of finished epochs.
  int resume() {
    std::unique_ptr<Copy> snapshot = copies_.empty() ? nullptr : std::move(copies_[0]);
    copies_.clear();
    for (int rank = 0; rank < ranks_; ++rank) {
      copies_.push_back(std::make_unique<Copy>(job_));
      if (!snapshot || has(Mistake::not_resumed) || has(Mistake::values_lost) || begins_anew(rank)) continue;
      lockstep::copy(snapshot->space->values(), copies_.back()->space->values());
      if (!has(Mistake::momentum_lost)) copies_.back()->velocity = snapshot->velocity;
    }
    if (!snapshot || has(Mistake::not_resumed)) return 0;
    return epochs_run_ + (has(Mistake::epoch_left_out) ? 1 : 0) - (has(Mistake::epoch_repeated) ? 1 : 0);
  }

  /// Returns whether this rank starts from initial values while others resume.
  bool begins_anew(int rank) const {
    return (has(Mistake::rank_0_alone_resumed) && rank > 0) ||
           (has(Mistake::node_0_alone_resumed) && rank >= ranks_of_a_node());
  }

  Batch batch_of(int64_t index, int64_t replica) const {
    const int64_t epoch = has(Mistake::epoch_not_set) ? 0 : index / steps_per_epoch();
    if (has(Mistake::first_replica)) replica = 0;
    if (has(Mistake::local_rank_as_rank)) replica %= ranks_of_a_node();
    replica %= sharers();
    const auto order = random_permutation(samples, static_cast<uint64_t>(epoch));
    const int64_t begin = index % steps_per_epoch() * job_.batch_size;
    std::vector<int64_t> indices;
    for (int64_t k = begin; k < std::min(begin + job_.batch_size, share()); ++k) {
      const int64_t place = has(Mistake::samples_in_blocks) ? replica * share() + k : k * sharers() + replica;
      indices.push_back(has(Mistake::not_shuffled) ? place % samples
                                                   : order[static_cast<size_t>(place % samples)]);
    }
    return collect(data_, indices, cpu_stream());
  }

  /// Returns the first replica of a rank. The rank runs the replicas up to the first one of the next rank.
  int first_of(int rank) const { return replicas_ * rank / ranks_; }

  void take_step(int64_t index) {
    std::vector<Numbers> gradients;
    std::vector<float> losses;
    for (int rank = 0; rank < ranks_; ++rank)
      for (int replica = first_of(rank); replica < first_of(rank + 1); ++replica) {
        const Copy& copy = *copies_[static_cast<size_t>(rank)];
        const Batch batch = batch_of(begins_anew(rank) ? index - first_ : index, replica);
        losses.push_back(backward_by_parts(copy, batch, index));
        gradients.push_back(gradient_);
      }
    for (int rank = 0; rank < ranks_; ++rank) {
      Numbers gradient = gradient_for(rank, gradients);
      if (has(Mistake::gradient_of_another_part)) repeat_first_parts(gradient.data());
      Copy& copy = *copies_[static_cast<size_t>(rank)];
      const Numbers before = numbers(copy.space->values());
      if (unscale(gradient)) update(copy, gradient);
      if (has(Mistake::values_not_gathered)) take_back(before, rank, copy.space->values().data<float>());
    }
    for (int rank = 0; rank < ranks_ && has(Mistake::first_part_everywhere); ++rank)
      repeat_first_parts(copies_[static_cast<size_t>(rank)]->space->values().data<float>());
    points_.push_back({.step = index + 1, .loss = tree_mean(losses)});
  }

  /// Stores the gradient of a batch in gradient_, as the mean over its micro-batches. Adds them from left to
  /// right. Returns the loss.
  float backward_by_parts(const Copy& copy, const Batch& batch, int64_t index) {
    const int64_t size = batch.samples / job_.parts;
    float total = 0.0f;
    for (int part = 0; part < job_.parts; ++part) {
      const int64_t first = has(Mistake::first_part) ? 0 : part * size;
      total += backward_of(copy, batch.inputs.slice(first, first + size),
                           batch.targets.slice(first, first + size), static_cast<uint32_t>(index));
      const Numbers own = numbers(copy.space->gradients());
      const bool adds =
          has(Mistake::earlier_gradients) ? !gradient_.empty() : part > 0 && !has(Mistake::last_gradient);
      gradient_ = adds ? add(gradient_, own) : own;
    }
    return total * (1.0f / static_cast<float>(job_.parts));
  }

  /// Runs one backward() and returns the loss.
  float backward_of(const Copy& copy, const Tensor& inputs, const Tensor& targets, uint32_t step) const {
    const double seed = job_.growth_interval > 0                        ? scale_
                        : job_.parts > 1 && !has(Mistake::gradient_sum) ? 1.0 / job_.parts
                                                                        : 1.0;
    const auto loss_of = [&](const Tensor& y) { return mean_squared_error(y, targets); };
    if (!copy.second) return walk(loss_of(copy.model(inputs)), seed);
    const auto first_half = [&](uint32_t draw) {
      return dropout(relu(copy.model(inputs)), 0.2, {.step = has(Mistake::same_mask) ? 0 : draw});
    };
    if (!has(Mistake::other_mask)) return walk(loss_of((*copy.second)(first_half(step))), seed);
    Tensor kept = first_half(2 * step).detach();
    kept.set_requires_grad();
    const float loss = walk(loss_of((*copy.second)(kept)), seed);
    backward(first_half(2 * step + 1), kept.grad());
    return loss;
  }

  static float walk(const Tensor& loss, double seed) {
    backward(loss, seed);
    return static_cast<float>(item(loss));
  }

  /// Divides the gradient by the scale and updates the scale. Returns whether the step may be taken.
  bool unscale(Numbers& gradient) {
    if (job_.growth_interval == 0) return true;
    bool is_finite = true;
    for (float& number : gradient) {
      if (!has(Mistake::not_unscaled)) number /= scale_;
      is_finite = is_finite && std::isfinite(number);
    }
    good_steps_ = is_finite || has(Mistake::overflow_counted) ? good_steps_ + 1 : 0;
    if (!is_finite && !has(Mistake::scale_not_halved)) scale_ /= 2;
    if (good_steps_ == job_.growth_interval) {
      scale_ *= 2;
      good_steps_ = 0;
    }
    return is_finite || has(Mistake::overflow_not_skipped);
  }

  Numbers gradient_for(int rank, const std::vector<Numbers>& gradients) const {
    const auto own = gradients.begin() + first_of(rank), own_end = gradients.begin() + first_of(rank + 1);
    if (has(Mistake::last_gradient)) return *(own_end - 1);
    if (has(Mistake::own_gradient)) return tree_mean(std::vector<Numbers>(own, own_end));
    if (has(Mistake::gradient_sum)) return tree_sum(gradients);
    if (!has(Mistake::chain_of_additions)) return tree_mean(gradients);
    Numbers total = gradients[0];
    for (size_t i = 1; i < gradients.size(); ++i) total = add(total, gradients[i]);
    for (float& number : total) number *= 1.0f / static_cast<float>(gradients.size());
    return total;
  }

  /// Returns the lists of elements of the flat space that are sharded. Each list has one part per rank.
  std::vector<std::vector<size_t>> cut_lists() const {
    const ParameterSpace& space = *copies_[0]->space;
    std::vector<std::vector<size_t>> lists;
    if (job_.cut == Cut::space) {
      lists.emplace_back(static_cast<size_t>(space.layout.elements()));
      std::iota(lists[0].begin(), lists[0].end(), 0);
    }
    for (size_t k = 0; job_.cut == Cut::layers && k < space.layout.parameters().size(); ++k) {
      if (k % 2 == 0) lists.emplace_back();  // one list for a weight and its bias
      const Range place = space.layout.parameters()[k].place;
      for (int64_t j = place.begin; j < place.end; ++j) lists.back().push_back(static_cast<size_t>(j));
    }
    return lists;
  }

  void repeat_first_parts(float* numbers) const {
    for (const std::vector<size_t>& list : cut_lists())
      for (size_t j = 0, share = list.size() / copies_.size(); j < list.size(); ++j)
        numbers[list[j]] = numbers[list[j % share]];
  }

  /// Restores the values that other ranks have moved.
  void take_back(const Numbers& before, int rank, float* values) const {
    for (const std::vector<size_t>& list : cut_lists())
      for (size_t j = 0, share = list.size() / copies_.size(); j < list.size(); ++j)
        if (j / share != static_cast<size_t>(rank)) values[list[j]] = before[list[j]];
  }

  /// Updates the values as kernels/sgd.h defines it.
  void update(Copy& copy, const Numbers& gradient) const {
    if (has(Mistake::no_step)) return;
    const auto momentum = static_cast<float>(has(Mistake::no_momentum) ? 0.0 : job_.momentum);
    const float share_of_gradient = has(Mistake::dampened_momentum) ? 1.0f - momentum : 1.0f;
    float* values = copy.space->values().data<float>();
    for (size_t j = 0; j < gradient.size(); ++j) {
      copy.velocity[j] = momentum * copy.velocity[j] + share_of_gradient * gradient[j];
      const float moved = learning_rate * copy.velocity[j];
      values[j] = has(Mistake::rounded_twice) ? values[j] - moved
                                              : std::fma(-learning_rate, copy.velocity[j], values[j]);
    }
    copy.space->copies.refresh();
  }

  float evaluation() const {
    const NoGrad no_grad;
    const SyntheticRegression unseen(500, features, /*seed=*/1);
    double sum = 0.0, count = 0.0, means = 0.0, batches = 0.0;
    for (int rank = 0; rank < (has(Mistake::own_part) ? 1 : ranks_); ++rank) {
      std::vector<int64_t> mine;
      for (int64_t sample = rank; sample < unseen.size(); sample += ranks_) mine.push_back(sample);
      double part = 0.0, part_of_means = 0.0;
      const auto batch_size = static_cast<size_t>(job_.batch_size);
      for (size_t begin = 0; begin < mine.size(); begin += batch_size) {
        const size_t size = std::min(batch_size, mine.size() - begin);
        const Batch batch = collect(unseen, {mine.data() + begin, size}, cpu_stream());
        const Copy& copy = *copies_[static_cast<size_t>(rank)];
        const double loss = item(mean_squared_error(copy.model(batch.inputs), batch.targets));
        part += loss * static_cast<double>(size);
        part_of_means += loss;
        batches += 1.0;
      }
      sum += part;
      means += part_of_means;
      count += static_cast<double>(mine.size());
    }
    return static_cast<float>(has(Mistake::mean_of_means) ? means / batches : sum / count);
  }

  const Job& job_;
  Mistake mistake_;
  SyntheticRegression data_{samples, features};
  std::vector<std::unique_ptr<Copy>> copies_;  ///< of the model, one per rank
  int ranks_ = 1;
  int replicas_ = 0;
  int epochs_run_ = 0;
  Numbers gradient_;  ///< of the last batch
  float scale_ = 65536.0f;
  int good_steps_ = 0;  ///< since the scale was last changed
  int64_t first_ = 0;   ///< first step of this start
  std::vector<Point> points_;
};

}  // namespace

int64_t steps_per_epoch(const Job& job) {
  const int replicas = job.replicas == 0 ? job.starts.at(0).ranks : job.replicas;
  return ((samples + replicas - 1) / replicas + job.batch_size - 1) / job.batch_size;
}

bool Point::operator==(const Point& other) const {
  return step == other.step && is_evaluation == other.is_evaluation &&
         std::bit_cast<uint32_t>(loss) == std::bit_cast<uint32_t>(other.loss);
}

std::vector<std::vector<Point>> trace(const Job& job, Mistake mistake) {
  Run run(job, mistake);
  std::vector<std::vector<Point>> points;
  for (const Start& start : job.starts) points.push_back(run.start(start));
  return points;
}

}  // namespace lockstep
