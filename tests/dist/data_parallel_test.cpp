// SPDX-License-Identifier: Apache-2.0
#include "dist/data_parallel.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

#include "core/error.h"
#include "dist/local_communicator.h"
#include "tensor/autograd.h"
#include "tensor/create.h"
#include "tensor/ops.h"
#include "tests/dist/reference_tree.h"

namespace lockstep {
namespace {

constexpr float learning_rate = 0.05f;
constexpr int steps = 3;

Tensor parameter(const Shape& shape) { return zeros(shape).set_requires_grad(); }

/// A few parameters of odd sizes. With `tied`, one more is used twice and listed under two names.
struct TinyModel {
  bool tied;
  Tensor mix = parameter({7, 7});
  Tensor weight = parameter({33, 7});
  Tensor bias = parameter({33});
  Tensor out = parameter({3, 33});

  TinyModel(uint64_t seed, bool has_tied) : tied(has_tied) {
    uint32_t site = 0;
    for (const Tensor& tensor : {mix, weight, bias, out}) fill_uniform(tensor, -0.7, 0.7, seed, site++);
  }

  std::vector<NamedTensor> parameters() const {
    std::vector<NamedTensor> all = {{"weight", weight}, {"bias", bias}, {"out", out}};
    if (tied) {
      all.insert(all.begin(), {"mix", mix});
      all.push_back({"mix_again", mix});
    }
    return all;
  }

  Tensor loss(uint64_t batch) const {
    Tensor x = empty({5, 7}), y = empty({5, 3});
    fill_uniform(x, -1, 1, batch, 10);
    fill_uniform(y, -1, 1, batch, 11);
    if (tied) x = linear(tanh(linear(x, mix)), mix);
    return mean_squared_error(linear(tanh(linear(x, weight, bias)), out), y);
  }
};

uint64_t batch_of(int step, int replica, int micro) {
  return static_cast<uint64_t>(1000 * step + 10 * replica + micro);
}

/// What a run leaves: the losses of its steps, then all parameters.
using Outcome = std::vector<float>;

std::vector<float> values_of(const Tensor& tensor) {
  return {tensor.data<float>(), tensor.data<float>() + tensor.size()};
}

void descend(const Tensor& tensor, const float* gradient) {
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.data<float>()[i] -= learning_rate * gradient[i];
}

void append_parameters(const TinyModel& model, Outcome& outcome) {
  for (const NamedTensor& named : model.parameters())
    for (float value : values_of(named.tensor)) outcome.push_back(value);
}

/// The definition: each replica by itself, its micro-batches from left to right, then the tree over replicas.
Outcome reference_run(int replicas, int accumulate, bool tied) {
  const TinyModel model(0, tied);
  const std::vector<Tensor> leaves = tied ? std::vector{model.mix, model.weight, model.bias, model.out}
                                          : std::vector{model.weight, model.bias, model.out};
  const float scale = 1.0f / static_cast<float>(replicas);
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    std::vector<float> losses;
    std::vector<std::vector<std::vector<float>>> gradients(leaves.size());  // [leaf][replica][element]
    for (int replica = 0; replica < replicas; ++replica) {
      float sum_of_losses = 0.0f;
      for (int micro = 0; micro < accumulate; ++micro) {
        const Tensor loss = model.loss(batch_of(step, replica, micro));
        sum_of_losses = micro == 0 ? loss.data<float>()[0] : sum_of_losses + loss.data<float>()[0];
        backward(loss, 1.0 / accumulate);
        for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
          const std::vector<float> gradient = values_of(leaves[leaf].grad());
          if (micro == 0) {
            gradients[leaf].push_back(gradient);
            continue;
          }
          for (size_t i = 0; i < gradient.size(); ++i) gradients[leaf].back()[i] += gradient[i];
        }
      }
      losses.push_back(sum_of_losses * (1.0f / static_cast<float>(accumulate)));
    }
    outcome.push_back(reference_tree_sum(losses) * scale);
    for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
      std::vector<float> mean;
      for (size_t i = 0; i < gradients[leaf][0].size(); ++i) {
        std::vector<float> of_replicas;
        for (const auto& gradient : gradients[leaf]) of_replicas.push_back(gradient[i]);
        mean.push_back(reference_tree_sum(of_replicas) * scale);
      }
      descend(leaves[leaf], mean.data());
    }
  }
  append_parameters(model, outcome);
  return outcome;
}

struct Setting {
  int ranks = 1;
  int threads = 1;
  bool tied = true;
  DataParallel::Options options;
};

std::ostream& operator<<(std::ostream& out, const Setting& setting) {
  return out << setting.options.replicas << " replicas on " << setting.ranks << " ranks, " << setting.threads
             << " threads, accumulate " << setting.options.accumulate << ", buckets of "
             << setting.options.bucket_bytes << " bytes, overlap " << setting.options.overlap
             << ", shared memory " << setting.options.shared_memory;
}

/// The same by thread ranks; every rank is compared with the reference.
void expect_outcome(const Setting& setting, const Outcome& expected) {
  run_ranks(setting.ranks, [&](Communicator& communicator) {
    set_threads(setting.threads);
    // Only rank 0's initial values may count.
    const TinyModel model(static_cast<uint64_t>(communicator.rank()), setting.tied);
    DataParallel ddp(model.parameters(), World(communicator.shared_from_this()), setting.options);
    Outcome outcome;
    for (int step = 0; step < steps; ++step) {
      for (int replica = ddp.replicas().begin; replica < ddp.replicas().end; ++replica)
        for (int micro = 0; micro < setting.options.accumulate; ++micro)
          ddp.backward(model.loss(batch_of(step, replica, micro)));
      outcome.push_back(ddp.wait());
      for (const NamedTensor& named : model.parameters())
        if (named.name != "mix_again") descend(named.tensor, named.tensor.grad().data<float>());
    }
    append_parameters(model, outcome);
    ASSERT_EQ(outcome.size(), expected.size());
    // Bytes, because 0 == -0 and NaN != NaN.
    for (size_t i = 0; i < outcome.size(); ++i)
      ASSERT_EQ(std::memcmp(&outcome[i], &expected[i], 4), 0)
          << "value " << i << " is " << outcome[i] << " instead of " << expected[i] << " with " << setting
          << ", rank " << communicator.rank();
  });
}

class DataParallelGate : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, DataParallelGate, testing::Values(1, 3, 7, 8, 12));

TEST_P(DataParallelGate, RanksThreadsBucketsAndTransportsDoNotShowInTheBits) {
  const int replicas = GetParam();
  const Outcome expected = reference_run(replicas, 1, true);
  for (int ranks = 1; ranks <= std::min(replicas, 7); ++ranks)
    for (int threads : {1, 2})
      for (int64_t bucket_bytes : {int64_t{4}, int64_t{1200}, int64_t{1} << 20})
        for (bool overlap : {false, true})
          for (bool shared_memory : {true, false})
            expect_outcome({.ranks = ranks,
                            .threads = threads,
                            .options = {.replicas = replicas,
                                        .bucket_bytes = bucket_bytes,
                                        .overlap = overlap,
                                        .shared_memory = shared_memory}},
                           expected);
}

TEST_P(DataParallelGate, MicroBatchesAreAddedFromLeftToRight) {
  const int replicas = GetParam();
  for (int accumulate : {2, 3}) {
    const Outcome expected = reference_run(replicas, accumulate, false);
    for (int ranks : {1, 2, 3})
      if (ranks <= replicas)
        expect_outcome({.ranks = ranks,
                        .tied = false,
                        .options = {.replicas = replicas,
                                    .accumulate = accumulate,
                                    .bucket_bytes = 1200,
                                    .overlap = ranks == 2}},
                       expected);
  }
}

TEST(DataParallel, TheGateSeesAnotherOrderOfAddition) {
  const TinyModel model(0, true);
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

TEST(DataParallel, AsManyReplicasAsRanksIfNoneAreAskedFor) {
  run_ranks(3, [](Communicator& communicator) {
    const TinyModel model(0, true);
    const DataParallel ddp(model.parameters(), World(communicator.shared_from_this()), {});
    EXPECT_EQ(ddp.total_replicas(), 3);
    EXPECT_EQ(ddp.replicas(), (ReplicaRange{communicator.rank(), communicator.rank() + 1}));
  });
}

TEST(DataParallel, AnUnusedParameterIsNamed) {
  const TinyModel model(0, false);
  std::vector<NamedTensor> parameters = model.parameters();
  parameters.push_back({"decoder.forgotten", parameter({4})});
  DataParallel ddp(parameters, World::alone(), {.replicas = 2});
  try {
    ddp.backward(model.loss(0));
    FAIL() << "accepted";
  } catch (const Error& failure) {
    EXPECT_NE(std::string(failure.what()).find("decoder.forgotten"), std::string::npos) << failure.what();
  }
}

TEST(DataParallel, StepsHaveAFixedNumberOfBackwards) {
  const TinyModel model(0, true);
  DataParallel ddp(model.parameters(), World::alone(), {.replicas = 2, .accumulate = 2});
  EXPECT_THROW(ddp.wait(), Error) << "no backward yet";
  for (int call = 0; call < 3; ++call) ddp.backward(model.loss(0));
  EXPECT_THROW(ddp.wait(), Error) << "one is owed";
  ddp.backward(model.loss(0));
  EXPECT_THROW(ddp.backward(model.loss(0)), Error) << "one too many";
  EXPECT_NO_THROW(ddp.wait());
  EXPECT_THROW(ddp.wait(), Error) << "the step is over";
}

TEST(DataParallel, TheMeanLossStaysBesideTheParameters) {
  const TinyModel model(0, true);
  DataParallel ddp(model.parameters(), World::alone(), {.replicas = 2});
  EXPECT_FALSE(ddp.is_capturable());
  std::vector<float> losses;
  for (uint64_t batch : {1, 2}) {
    const Tensor loss = model.loss(batch);
    losses.push_back(static_cast<float>(item(loss)));
    ddp.backward(loss);
  }
  ddp.finish();
  EXPECT_EQ(ddp.mean_loss().size(), 1);
  EXPECT_EQ(item(ddp.mean_loss()), (losses[0] + losses[1]) * 0.5f);
  EXPECT_THROW(ddp.finish(), Error) << "the step is over";
}

TEST(DataParallel, WhatOneRankAsksForReachesAllWithTheStep) {
  run_ranks(3, [](Communicator& ranks) {
    const TinyModel model(0, true);
    DataParallel ddp(model.parameters(), World(ranks.shared_from_this()), {.replicas = 4});
    const auto step = [&] {
      for (int i = 0; i < ddp.replicas().size(); ++i) ddp.backward(model.loss(1));
      const float loss = ddp.wait();
      return std::pair(loss, to_doubles(model.weight.grad()));
    };
    const auto before = step();
    EXPECT_EQ(to_doubles(ddp.votes()), (std::vector<double>{0.0, 0.0}));
    for (const Vote what : {Vote::stop, Vote::snapshot}) {
      if (ranks.rank() == 1) ddp.vote(what);
      EXPECT_EQ(step(), before) << "the vote shows in the bits";
      const std::vector<double> votes = to_doubles(ddp.votes());
      for (const Vote other : {Vote::stop, Vote::snapshot})
        EXPECT_EQ(votes.at(static_cast<size_t>(other)) > 0.0, other == what) << "rank " << ranks.rank();
      if (ranks.rank() == 1) ddp.vote(what, false);
    }
  });
}

TEST(DataParallel, TheParametersOutliveIt) {
  const TinyModel model(0, true);
  {
    DataParallel ddp(model.parameters(), World::alone(), {});
    ddp.backward(model.loss(1));
    ddp.wait();
  }
  const std::vector<float> gradient = values_of(model.weight.grad());
  backward(model.loss(1));
  EXPECT_EQ(values_of(model.weight.grad()), gradient);
}

/// How many ranks refused, all with a text that has these words.
void expect_refusal(const std::vector<std::string>& words,
                    const std::function<void(Communicator&)>& construct) {
  std::atomic<int> refusals{0};
  run_ranks(3, [&](Communicator& communicator) {
    try {
      construct(communicator);
    } catch (const UserError& failure) {
      ++refusals;
      for (const std::string& word : words)
        EXPECT_NE(std::string(failure.what()).find(word), std::string::npos) << failure.what();
    }
  });
  EXPECT_EQ(refusals.load(), 3) << "every rank must refuse";
}

TEST(DataParallel, RanksWithOtherModelsAreRefusedByName) {
  const auto construct = [](Communicator& communicator, std::vector<NamedTensor> parameters) {
    DataParallel ddp(parameters, World(communicator.shared_from_this()), {});
  };
  expect_refusal({"encoder", "decoder", "rank 2"}, [&](Communicator& communicator) {
    construct(communicator, {{"first", parameter({3})},
                             {communicator.rank() == 2 ? "decoder" : "encoder", parameter({3})}});
  });
  expect_refusal({"first", "[3, 4]", "[4, 3]", "rank 1"}, [&](Communicator& communicator) {
    construct(communicator, {{"first", parameter(communicator.rank() == 1 ? Shape{4, 3} : Shape{3, 4})},
                             {"last", parameter({2})}});
  });
  expect_refusal({"last", "nothing", "rank 1"}, [&](Communicator& communicator) {
    std::vector<NamedTensor> parameters = {{"first", parameter({3})}};
    if (communicator.rank() != 1) parameters.push_back({"last", parameter({2})});
    construct(communicator, parameters);
  });
}

TEST(DataParallel, OptionsThatChangeTheStepMustAgree) {
  expect_refusal({"accumulate = 1", "accumulate = 2", "rank 1"}, [](Communicator& communicator) {
    const TinyModel model(0, true);
    DataParallel ddp(model.parameters(), World(communicator.shared_from_this()),
                     {.accumulate = communicator.rank() == 1 ? 2 : 1});
  });
  expect_refusal({"dist.replicas = 2", "3 ranks"}, [](Communicator& communicator) {
    const TinyModel model(0, true);
    DataParallel ddp(model.parameters(), World(communicator.shared_from_this()), {.replicas = 2});
  });
}

TEST(DataParallel, OnlyFp32LeavesAreParameters) {
  const World alone = World::alone();
  EXPECT_THROW(DataParallel({{"data", zeros({2})}}, alone, {}), Error);
  EXPECT_THROW(DataParallel({{"double", zeros({2}, DType::f64).set_requires_grad()}}, alone, {}), Error);
  EXPECT_THROW(DataParallel({{"first", parameter({2})}}, alone, {.accumulate = 0}), Error);
}

TEST(DataParallel, NotANumberReachesEveryRank) {
  for (bool overlap : {false, true})
    run_ranks(3, [&](Communicator& communicator) {
      const TinyModel model(0, true);
      DataParallel ddp(model.parameters(), World(communicator.shared_from_this()),
                       {.replicas = 7, .overlap = overlap});
      for (int replica = ddp.replicas().begin; replica < ddp.replicas().end; ++replica)
        ddp.backward(scale(model.loss(0), replica == 4 ? NAN : 1.0));
      EXPECT_TRUE(std::isnan(ddp.wait()));
      for (float value : values_of(model.out.grad())) ASSERT_TRUE(std::isnan(value));
    });
}

TEST(DataParallel, ARankThatThrowsEndsAllOfThemWithItsOwnException) {
  for (bool overlap : {false, true})
    for (bool shared_memory : {false, true})
      for (int bad_replica : {2, 3}) {
        std::string failure;
        try {
          run_ranks(3, [&](Communicator& communicator) {
            communicator.set_timeout(1e6);
            const TinyModel model(0, true);
            DataParallel ddp(
                model.parameters(), World(communicator.shared_from_this()),
                {.replicas = 6, .bucket_bytes = 4, .overlap = overlap, .shared_memory = shared_memory});
            for (int replica = ddp.replicas().begin; replica < ddp.replicas().end; ++replica) {
              require(replica != bad_replica, "the data of replica ", replica, " are gone");
              ddp.backward(model.loss(0));
            }
            ddp.wait();
          });
        } catch (const UserError& error) {
          failure = error.what();
        }
        EXPECT_EQ(failure, concat("the data of replica ", bad_replica, " are gone"));
      }
}

}  // namespace
}  // namespace lockstep
