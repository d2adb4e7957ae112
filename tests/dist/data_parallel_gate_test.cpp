// SPDX-License-Identifier: Apache-2.0
// Nothing but the replicas shows in the bits of a run.
#include <cstring>
#include <gtest/gtest.h>

#include "comm/local_communicator.h"
#include "dist/data_parallel.h"
#include "tensor/autograd.h"
#include "tests/dist/momentum.h"
#include "tests/dist/reference_tree.h"
#include "tests/dist/tiny_model.h"

namespace lockstep {
namespace {

/// What a run leaves: the loss and the norm of each step, then the last gradients, the momenta and all
/// parameters.
using Outcome = std::vector<float>;

void append(const Tensor& tensor, Outcome& outcome) {
  for (const float value : values_of(tensor)) outcome.push_back(value);
}

void append_ends(const ParameterSpace& space, const Optimizer& optimizer, bool with_states,
                 Outcome& outcome) {
  for (const Parameter& one : space.parameters()) append(one.tensor.grad(), outcome);
  for (const Parameter& one : space.parameters()) append(one.tensor, outcome);
  if (with_states)
    for (const auto& [name, tensor] : optimizer.state()) append(tensor, outcome);
}

/// The definition: each replica by itself, its micro-batches from left to right, then the tree over replicas;
/// norm, clipping and update by one rank.
Outcome reference_run(int replicas, int accumulate, bool tied) {
  const TinyModel model(0, tied);
  ParameterSpace space(model.parameters());
  Momentum optimizer(space);
  const float scale = 1.0f / static_cast<float>(replicas);
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    std::vector<float> losses;
    std::vector<std::vector<float>> gradients;  // [replica][element]
    for (int replica = 0; replica < replicas; ++replica) {
      float sum_of_losses = 0.0f;
      std::vector<float> sum;
      for (int micro = 0; micro < accumulate; ++micro) {
        const Tensor loss = model.loss(batch_of(step, replica, micro));
        sum_of_losses = micro == 0 ? loss.data<float>()[0] : sum_of_losses + loss.data<float>()[0];
        backward(loss, 1.0 / accumulate);
        const std::vector<float> gradient = values_of(space.gradients());
        if (micro == 0) sum = gradient;
        for (size_t i = 0; i < gradient.size() && micro > 0; ++i) sum[i] += gradient[i];
      }
      gradients.push_back(sum);
      losses.push_back(sum_of_losses * (1.0f / static_cast<float>(accumulate)));
    }
    outcome.push_back(reference_tree_sum(losses) * scale);
    for (size_t i = 0; i < gradients[0].size(); ++i) {
      std::vector<float> of_replicas;
      for (const auto& gradient : gradients) of_replicas.push_back(gradient[i]);
      space.gradients().data<float>()[i] = reference_tree_sum(of_replicas) * scale;
    }
    const GradientNorm norm = measure_gradient_norm(space, max_norm);
    outcome.push_back(static_cast<float>(item(norm.norm)));
    optimizer.prepare(learning_rate);
    optimizer.update(norm.factor);
  }
  append_ends(space, optimizer, true, outcome);
  return outcome;
}

struct Setting {
  int ranks = 1;
  int threads = 1;
  bool tied = true;
  bool by_owners = false;
  DataParallel::Options options;
};

std::ostream& operator<<(std::ostream& out, const Setting& setting) {
  const DataParallel::Options& options = setting.options;
  return out << options.replicas << " replicas on " << setting.ranks << " ranks, " << setting.threads
             << " threads, accumulate " << options.accumulate << ", buckets of " << options.bucket_bytes
             << " bytes, overlap " << options.overlap << ", shared memory " << options.shared_memory << ", "
             << name(options.execution) << (setting.by_owners ? ", step()" : ", wait()");
}

/// The same by thread ranks; every rank is compared with the reference.
void expect_outcome(const Setting& setting, const Outcome& expected) {
  run_ranks(setting.ranks, [&](Communicator& communicator) {
    set_threads(setting.threads);
    // Only rank 0's initial values may count.
    const TinyModel model(static_cast<uint64_t>(communicator.rank()), setting.tied);
    ParameterSpace space(model.parameters());
    DataParallel ddp(space, World(communicator.shared_from_this()), setting.options);
    Momentum optimizer(space);
    Outcome outcome;
    for (int step = 0; step < steps; ++step) {
      for (const int replica : ddp.replicas())
        for (int micro = 0; micro < setting.options.accumulate; ++micro)
          ddp.backward(model.loss(batch_of(step, replica, micro)));
      if (setting.by_owners) {
        ddp.step(optimizer, learning_rate, max_norm);
        outcome.push_back(static_cast<float>(item(ddp.mean_loss())));
        outcome.push_back(static_cast<float>(item(ddp.gradient_norm())));
        continue;
      }
      outcome.push_back(ddp.wait());
      const GradientNorm norm = measure_gradient_norm(space, max_norm);
      outcome.push_back(static_cast<float>(item(norm.norm)));
      optimizer.prepare(learning_rate);
      optimizer.update(norm.factor);
    }
    ddp.gather_gradients();
    ddp.gather_states(optimizer);
    const bool has_states = communicator.rank() == 0 || !setting.by_owners;
    append_ends(space, optimizer, has_states, outcome);
    ASSERT_EQ(outcome.size() == expected.size(), has_states) << outcome.size();
    // Bytes, because 0 == -0 and NaN != NaN.
    for (size_t i = 0; i < outcome.size(); ++i)
      ASSERT_EQ(std::memcmp(&outcome[i], &expected[i], 4), 0)
          << "value " << i << " is " << outcome[i] << " instead of " << expected[i] << " with " << setting
          << ", rank " << communicator.rank();
  });
}

class DataParallelGate : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, DataParallelGate, testing::Values(1, 3, 7, 8, 12));

TEST_P(DataParallelGate, RanksThreadsBucketsTransportsExecutionAndOwnersDoNotShowInTheBits) {
  const int replicas = GetParam();
  const Outcome expected = reference_run(replicas, 1, true);
  for (int ranks = 1; ranks <= std::min(replicas, 7); ++ranks)
    for (const int64_t bucket_bytes : {int64_t{0}, int64_t{1} << 20})
      for (const bool overlap : {false, true})
        for (const bool shared_memory : {true, false})
          for (const Execution execution : {Execution::ranges, Execution::interleaved})
            for (const bool by_owners : {false, true})
              expect_outcome({.ranks = ranks,
                              .threads = overlap ? 1 : 2,
                              .by_owners = by_owners,
                              .options = {.replicas = replicas,
                                          .execution = execution,
                                          .bucket_bytes = bucket_bytes,
                                          .overlap = overlap,
                                          .shared_memory = shared_memory}},
                             expected);
}

TEST_P(DataParallelGate, MicroBatchesAreAddedFromLeftToRight) {
  const int replicas = GetParam();
  for (const int accumulate : {2, 3}) {
    const Outcome expected = reference_run(replicas, accumulate, false);
    for (const int ranks : {1, 2, 3})
      if (ranks <= replicas)
        expect_outcome({.ranks = ranks,
                        .tied = false,
                        .by_owners = ranks == 3,
                        .options = {.replicas = replicas,
                                    .accumulate = accumulate,
                                    .execution = ranks == 1 ? Execution::ranges : Execution::interleaved,
                                    .bucket_bytes = 1200,
                                    .overlap = ranks == 2}},
                       expected);
  }
}

TEST(DataParallel, TheGateSeesAnotherOrderOfAddition) {
  const TinyModel model;
  std::vector<std::vector<float>> gradients;
  for (int replica = 0; replica < 12; ++replica) {
    backward(model.loss(batch_of(0, replica, 0)));
    gradients.push_back(values_of(model.weight.grad()));
  }
  int different = 0;
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    std::vector<float> of_replicas;
    float left_to_right = 0.0f;
    for (const auto& gradient : gradients) {
      of_replicas.push_back(gradient[i]);
      left_to_right += gradient[i];
    }
    different += reference_tree_sum(of_replicas) != left_to_right;
  }
  EXPECT_GT(different, 10) << "these gradients cannot tell the orders apart";
}

}  // namespace
}  // namespace lockstep
