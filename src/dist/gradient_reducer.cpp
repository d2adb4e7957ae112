// SPDX-License-Identifier: Apache-2.0
#include "dist/gradient_reducer.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/graph.h"
#include "core/log.h"
#include "kernels/fold.h"

namespace lockstep {
namespace {

/// y[0:count) = scale * the program over inputs[k][0:count).
void launch_fold(const Stream& stream, const std::vector<int>& program,
                 const std::vector<const float*>& inputs, float* y, int64_t count, float scale) {
  const bool is_there = program.size() == 1 && inputs[static_cast<size_t>(program[0])] == y && scale == 1.0f;
  if (count == 0 || is_there) return;
  Fold kernel{.inputs = {}, .program = program, .y = {y, {count}, DType::f32}, .scale = scale};
  // A view does not say what is only read.
  for (const float* input : inputs) kernel.inputs.push_back({const_cast<float*>(input), {count}, DType::f32});
  launch(stream, kernel);
}

Transport settle_transport(Communicator& communicator, Transport wanted, int device) {
  if (wanted != Transport::automatic) return wanted;
  const TransportFacts facts = gather_transport_facts(communicator, device);
  const Transport transport = choose_transport(facts);
  if (transport == Transport::staged && communicator.rank() == 0)
    log_warning(concat("gradients travel through the memory of the host, because ",
                       facts.shares_gpu ? "ranks share a GPU" : "this build has no NCCL"));
  return transport;
}

}  // namespace

GradientReducer::GradientReducer(std::shared_ptr<Communicator> communicator, BucketPlan buckets,
                                 const DataParallelOptions& options, const Stream& stream)
    : communicator_(std::move(communicator)),
      buckets_(std::move(buckets)),
      reduction_(options.reduction),
      plan_(options.replicas > 0 ? options.replicas : communicator_->size(), communicator_->size(),
            communicator_->rank(), reduction_ == Reduction::native ? Execution::ranges : options.execution,
            false),
      ready_(buckets_.buckets.size(), false) {
  make_movement(options, stream);
  for (size_t r = 0; r < plan_.rounds.size(); ++r)
    for (const Replica& replica : plan_.rounds[r].replicas) replicas_.emplace_back(r, replica);
  if (plan_.levels > 0) {
    int64_t owned = 0;
    for (const Range& range : buckets_.owned[static_cast<size_t>(plan_.rank)]) owned += range.size();
    const MemoryScope scope("gradients");
    counter_ = Storage::make(plan_.levels * owned * 4, movement_->stream());
  }
  const bool has_peers = communicator_->size() > 1;
  if (options.overlap && has_peers && !on_gpu()) server_ = std::thread([this] { serve(); });
}

GradientReducer::~GradientReducer() {
  if (!server_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    // A step that nobody finishes ends this rank: its thread must not wait for peers that may never come.
    if (std::find(ready_.begin(), ready_.end(), true) != ready_.end()) communicator_->cancel();
  }
  changed_.notify_all();
  server_.join();
}

/// Makes the movement between hosts' memories, and this rank's slots there. Returns whether ranks share them.
bool GradientReducer::make_host_movement(bool may_share) {
  const int64_t count = plan_.slots * buckets_.elements;
  if (may_share && plan_.ranks > 1) {
    movement_ = move_in_shared_memory(communicator_);
    if ((storage_ = movement_->allocate(count, false))) return true;
  }
  movement_ = move_as_messages(communicator_, cpu_stream());
  storage_ = movement_->allocate(count, false);
  return false;
}

void GradientReducer::make_movement(const DataParallelOptions& options, const Stream& stream) {
  const MemoryScope scope("gradients");
  const bool is_host = device_of(stream) == Device::cpu;
  const Transport transport =
      is_host ? Transport::staged : settle_transport(*communicator_, options.transport, gpu_of(stream));
  const bool is_shared = transport == Transport::staged &&
                         make_host_movement(options.shared_memory && reduction_ == Reduction::tree);
  // Where slots are read in place, the last replica's additions are part of the fold.
  plan_ = ReductionPlan(plan_.total_replicas, plan_.ranks, plan_.rank, plan_.execution,
                        plan_.ranks > 1 && !is_shared);
  if (is_host) return;
  if (transport == Transport::staged) {
    movement_ = move_through_host(std::move(movement_), std::move(storage_), plan_.rank, stream);
  } else if (transport == Transport::nccl) {
    movement_ = move_by_nccl(communicator_, buckets_, plan_, stream);
  } else {
    expect(plan_.ranks == 1, plan_.ranks, " ranks cannot reduce alone");
    movement_ = move_as_messages(communicator_, stream);
  }
  storage_ = movement_->allocate(plan_.slots * buckets_.elements, false);
}

/// Where an element that this rank owns lies in a level.
float* GradientReducer::counter(int level, int64_t element) const {
  int64_t before = 0, all = 0;
  for (const Range& range : buckets_.owned[static_cast<size_t>(plan_.rank)]) {
    before += intersection(range, {0, element}).size();
    all += range.size();
  }
  return reinterpret_cast<float*>(counter_->data.get()) + level * all + before;
}

Movement::Scatter GradientReducer::scatter_of(int bucket) const {
  return {.bucket = buckets_.buckets[static_cast<size_t>(bucket)],
          .slots_of_rank = round().slots_of_rank,
          .slots = slot(0),
          .written = round().replicas.empty() ? 0 : round().replicas.back().slot + 1,
          .stride = buckets_.elements,
          .begins_step = round_ == 0 && bucket == 0};
}

/// slot `last - 1` += slot `last`, and so on downwards.
void GradientReducer::add_slots(const Stream& stream, float* slots, const BucketPlan::Bucket& bucket,
                                int last, int times) {
  for (float* right = slots + last * buckets_.elements + bucket.range.begin; times > 0;
       --times, right -= buckets_.elements) {
    float* left = right - buckets_.elements;
    launch_fold(stream, {0, 1, Fold::add}, {left, right}, left, bucket.range.size(), 1.0f);
  }
}

int GradientReducer::begin(int k) {
  const auto& [round, replica] = replicas_[static_cast<size_t>(k)];
  if (k == 0) exposed_seconds_ = 0.0;
  if (round > round_) end_round();
  return replica.slot;
}

void GradientReducer::complete(int bucket, int k) {
  const auto b = static_cast<size_t>(bucket);
  const auto& [index, replica] = replicas_[static_cast<size_t>(k)];
  if (replica.index != round().replicas.back().index)
    return add_slots(storage_->stream, slot(0), buckets_.buckets[b], replica.slot, replica.additions);
  movement_->offer(scatter_of(bucket));
  if (!is_queued()) written_.record(storage_->stream);
  std::unique_lock lock(mutex_);
  ready_[b] = true;
  if (is_queued()) reduce_ready_buckets(lock);
  if (failure_ && is_queued()) std::rethrow_exception(std::exchange(failure_, nullptr));
  if (server_.joinable()) changed_.notify_all();
}

void GradientReducer::end_round() {
  expect(is_queued() || !is_recording_graph(),
         "gradients that travel through the host cannot be recorded in a graph");
  if (!is_queued()) written_.synchronize();  // up to here it is computation
  const auto begin = Clock::now();
  std::unique_lock lock(mutex_);
  if (round().replicas.empty()) ready_.assign(ready_.size(), true);
  const auto missing = std::find(ready_.begin(), ready_.end(), false);
  expect(missing == ready_.end(), "bucket ", missing - ready_.begin(), " was never completed");
  if (server_.joinable()) {
    changed_.notify_all();
    changed_.wait(lock, [this] { return next_ == ready_.size() || failure_; });
  } else {
    reduce_ready_buckets(lock);
  }
  if (failure_) std::rethrow_exception(failure_);
  ready_.assign(ready_.size(), false);
  next_ = 0;
  ++round_;
  movement_->join();
  exposed_seconds_ += seconds_since(begin);
}

void GradientReducer::finish(bool everything) {
  check();
  while (round_ < plan_.rounds.size()) end_round();
  round_ = 0;
  const bool has_everything = gathers_early_ || reduction_ == Reduction::native;
  gathers_early_ = everything;
  if (everything && !has_everything) gather(slot(0), buckets_.owned);
}

void GradientReducer::gather(float* flat, const Ownership& owned, int root) {
  const auto begin = Clock::now();
  movement_->gather(flat, owned, root);
  movement_->join();
  exposed_seconds_ += seconds_since(begin);
}

void GradientReducer::reduce_ready_buckets(std::unique_lock<std::mutex>& lock) {
  while (next_ < ready_.size() && ready_[next_]) {
    const auto bucket = static_cast<int>(next_);
    lock.unlock();
    try {
      reduce(bucket);
      lock.lock();
      ++next_;
    } catch (...) {
      lock.lock();
      failure_ = std::current_exception();
      return;
    }
  }
}

void GradientReducer::serve() {
  std::unique_lock lock(mutex_);
  while (!failure_) {
    changed_.wait(lock, [this] { return stopping_ || (next_ < ready_.size() && ready_[next_]); });
    if (stopping_) return;
    reduce_ready_buckets(lock);
    changed_.notify_all();
  }
}

void GradientReducer::reduce(int bucket) {
  const Movement::Scatter what = scatter_of(bucket);
  float* const slots = movement_->land(what);
  const bool has_last = plan_.merges_last && !round().replicas.empty();
  if (has_last)
    add_slots(movement_->stream(), slots, what.bucket, round().replicas.back().slot,
              round().replicas.back().additions);
  if (reduction_ == Reduction::native) return reduce_natively(what, slots);
  fold(what, slots);
  if (round_ + 1 < plan_.rounds.size()) return;
  movement_->deliver(what);
  if (gathers_early_) movement_->gather(slot(0), what.bucket.owned, Movement::everybody);
}

void GradientReducer::fold(const Movement::Scatter& what, float* slots) {
  const auto arrived = movement_->scatter(what);
  for (size_t i = 0; i < arrived.size(); ++i) {
    const Range range = what.bucket.owned[static_cast<size_t>(plan_.rank)][i];
    std::vector<const float*> inputs;
    for (int level = 0; level < round().levels; ++level) inputs.push_back(counter(level, range.begin));
    inputs.insert(inputs.end(), arrived[i].begin(), arrived[i].end());
    for (const auto& [program, level] : round().folds) {
      const bool is_mean = level == ReductionPlan::Fold::mean;
      launch_fold(movement_->stream(), program, inputs,
                  is_mean ? slots + range.begin : counter(level, range.begin), range.size(),
                  is_mean ? 1.0f / static_cast<float>(plan_.total_replicas) : 1.0f);
    }
  }
}

void GradientReducer::reduce_natively(const Movement::Scatter& what, float* slots) {
  const Stream& stream = movement_->stream();
  const int64_t count = what.bucket.range.size();
  float* const sum = slots + what.bucket.range.begin;
  const int pending = what.slots_of_rank[static_cast<size_t>(plan_.rank)];
  for (int i = 1; i < pending; ++i)
    launch_fold(stream, {0, 1, Fold::add}, {sum, sum + i * what.stride}, sum, count, 1.0f);
  if (plan_.ranks > 1) movement_->sum(sum, count);
  launch_fold(stream, {0}, {sum}, sum, count, 1.0f / static_cast<float>(plan_.total_replicas));
  // Every rank has all of it.
  const BucketPlan::Bucket everything{what.bucket.range,
                                      Ownership(what.bucket.owned.size(), {what.bucket.range})};
  movement_->deliver(
      {everything, what.slots_of_rank, what.slots, what.written, what.stride, what.begins_step});
}

}  // namespace lockstep
