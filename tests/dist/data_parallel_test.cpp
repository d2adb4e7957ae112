// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dist/data_parallel.h"

#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/core/error.h"
#include "lockstep/tensor/autograd.h"
#include "tests/dist/momentum.h"
#include "tests/dist/tiny_model.h"
#include "tests/support/user_error.h"

namespace lockstep::data_parallel_test {
namespace {

TEST(DataParallel, AsManyReplicasAsRanksIfNoneAreAskedFor) {
  run_ranks(3, [](Communicator& communicator) {
    ParameterSpace space(TinyModel().parameters());
    const DataParallel ddp(space, World(communicator.shared_from_this()), {});
    EXPECT_EQ(ddp.total_replicas(), 3);
    EXPECT_EQ(ddp.replicas(), std::vector<int>{communicator.rank()});
  });
}

TEST(DataParallel, AnUnusedParameterIsNamed) {
  const TinyModel model;
  std::vector<NamedTensor> parameters = model.parameters();
  parameters.push_back({"decoder.forgotten", parameter({4})});
  ParameterSpace space(parameters);
  DataParallel ddp(space, World::alone(), {.replicas = 2});
  EXPECT_NE(error_of([&] { ddp.backward(model.loss(0)); }).find("decoder.forgotten"), std::string::npos);
}

TEST(DataParallel, StepsHaveAFixedNumberOfBackwards) {
  const TinyModel model;
  ParameterSpace space(model.parameters());
  DataParallel ddp(space, World::alone(), {.replicas = 2, .accumulate = 2});
  EXPECT_THROW(ddp.wait(), Error) << "no backward yet";
  for (int call = 0; call < 3; ++call) ddp.backward(model.loss(0));
  EXPECT_THROW(ddp.wait(), Error) << "one backward is missing";
  ddp.backward(model.loss(0));
  EXPECT_THROW(ddp.backward(model.loss(0)), Error) << "one backward too many";
  EXPECT_NO_THROW(ddp.wait());
  EXPECT_THROW(ddp.wait(), Error) << "the step is over";
}

TEST(DataParallel, TheMeanLossStaysBesideTheParameters) {
  const TinyModel model;
  ParameterSpace space(model.parameters());
  DataParallel ddp(space, World::alone(), {.replicas = 2});
  EXPECT_FALSE(ddp.setup.is_capturable);
  std::vector<float> losses;
  for (const uint64_t batch : {1, 2}) {
    const Tensor loss = model.loss(batch);
    losses.push_back(static_cast<float>(item(loss)));
    ddp.backward(loss);
  }
  ddp.finish();
  EXPECT_EQ(ddp.summary.mean_loss().size(), 1);
  EXPECT_EQ(item(ddp.summary.mean_loss()), (losses[0] + losses[1]) * 0.5f);
}

TEST(DataParallel, WhatOneRankAsksForReachesAllWithTheStep) {
  for (const auto& [shard, by_owners] : {std::pair(Shard::none, false),
                                         {Shard::none, true},
                                         {Shard::optimizer, true},
                                         {Shard::gradients, true},
                                         {Shard::full, true}})
    run_ranks(3, [&, shard = shard, by_owners = by_owners](Communicator& ranks) {
      const TinyModel model;
      ParameterSpace space(model.parameters());
      DataParallel ddp(space, World(ranks.shared_from_this()), {.replicas = 4, .shard = shard});
      Momentum optimizer(space);
      const auto step = [&] {
        ddp.begin_step();
        for (size_t i = 0; i < ddp.setup.micro_batches.size(); ++i) ddp.backward(model.loss(1));
        by_owners ? ddp.step(optimizer, 0.0) : ddp.finish();
        if (!ddp.setup.sharding.cuts_gradients()) ddp.gather_gradients();
        return std::pair(item(ddp.summary.mean_loss()), to_doubles(space.gradients()));
      };
      const auto before = step();
      EXPECT_EQ(to_doubles(ddp.summary.votes()), (std::vector<double>{0.0, 0.0}));
      for (const Vote what : {Vote::stop, Vote::snapshot}) {
        if (ranks.rank() == 1) ddp.summary.vote(what);
        EXPECT_EQ(step(), before) << "a vote must not change the bits";
        const std::vector<double> votes = to_doubles(ddp.summary.votes());
        for (const Vote other : {Vote::stop, Vote::snapshot})
          EXPECT_EQ(votes.at(static_cast<size_t>(other)) > 0.0, other == what) << "rank " << ranks.rank();
        if (ranks.rank() == 1) ddp.summary.vote(what, false);
      }
    });
}

// Ranks exchange the squares of blocks in another order than that of the additions. Many blocks are needed to
// see an order in 64 bits.
TEST(DataParallel, TheNormHasTheSame64BitsOnAnyNumberOfRanks) {
  std::vector<double> norms;
  for (const int ranks : {1, 2, 3, 4})
    run_ranks(ranks, [&](Communicator& communicator) {
      std::vector<NamedTensor> parameters;
      for (uint32_t i = 0; i < 7; ++i) {
        parameters.push_back({concat("unit", i, ".weight"), parameter({(5 + i) * ParameterLayout::block})});
        fill_uniform(parameters.back().tensor, -1, 1, 0, i);
      }
      ParameterSpace space(parameters);
      DataParallel ddp(space, World(communicator.shared_from_this()), {.replicas = 4});
      Momentum optimizer(space);
      for (int i = 0; i < std::ssize(ddp.replicas()); ++i) {
        Tensor loss;
        for (const NamedTensor& one : parameters) {
          const Tensor part = mean_squared_error(one.tensor, zeros(one.tensor.shape()));
          loss = loss ? add(loss, part) : part;
        }
        ddp.backward(loss);
      }
      ddp.step(optimizer, learning_rate, max_norm);
      if (communicator.rank() + 1 == ranks) norms.push_back(item(ddp.summary.gradient_norm()));
    });
  EXPECT_EQ(norms, std::vector<double>(4, norms[0]));
}

TEST(DataParallel, AfterAStepByOwnersWhatARankDoesNotHoldIsRefused) {
  run_ranks(2, [](Communicator& ranks) {
    const TinyModel model;
    ParameterSpace space(model.parameters());
    DataParallel ddp(space, World(ranks.shared_from_this()), {});
    Momentum optimizer(space);
    ddp.backward(model.loss(1));
    ddp.step(optimizer, learning_rate);
    EXPECT_NE(error_of([&] { model.out.grad(); }).find("gather_gradients()"), std::string::npos);
    EXPECT_THROW(measure_gradient_norm(space, 0.0), Error);
    ddp.gather_gradients();
    EXPECT_EQ(model.out.grad().size(), model.out.size());
    EXPECT_NE(error_of([&] { optimizer.step(learning_rate); }).find("DataParallel::step()"),
              std::string::npos);
    ddp.backward(model.loss(2));
    EXPECT_NO_THROW(model.out.grad()) << "the gradient of this replica is readable";
    ddp.step(optimizer, learning_rate);
    EXPECT_THROW(model.out.grad(), Error);
    const TinyModel other;
    ParameterSpace other_space(other.parameters());
    Momentum stranger(other_space);
    EXPECT_THROW(ddp.update(stranger, 0.0), Error);
  });
}

TEST(DataParallel, NothingIsTrainedWhereEverythingIsFrozen) {
  TinyModel model;
  for (NamedTensor& named : model.parameters()) named.tensor.set_requires_grad(false);
  ParameterSpace space(model.parameters());
  EXPECT_NO_THROW(DataParallel(space, World::alone(), {}));
}

TEST(DataParallel, TheParametersOutliveIt) {
  for (const int ranks : {1, 2})
    run_ranks(ranks, [](Communicator& communicator) {
      const TinyModel model;
      ParameterSpace space(model.parameters());
      {
        DataParallel ddp(space, World(communicator.shared_from_this()), {});
        ddp.backward(model.loss(1));
        ddp.wait();
      }
      const std::vector<float> gradient = values_of(model.weight.grad());
      backward(model.loss(1));
      EXPECT_EQ(values_of(model.weight.grad()), gradient);
    });
}

/// Expects that all three ranks throw UserError. Each text must contain all of `words`.
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
  const auto construct = [](Communicator& communicator, const std::vector<NamedTensor>& parameters) {
    ParameterSpace space(parameters);
    DataParallel ddp(space, World(communicator.shared_from_this()), {});
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
  expect_refusal({"first", "frozen", "rank 1"}, [&](Communicator& communicator) {
    construct(communicator, {{"first", parameter({3}).set_requires_grad(communicator.rank() != 1)}});
  });
}

TEST(DataParallel, OptionsThatChangeTheStepMustAgree) {
  const auto construct = [](Communicator& communicator, const DataParallel::Options& options) {
    ParameterSpace space(TinyModel().parameters());
    DataParallel ddp(space, World(communicator.shared_from_this()), options);
  };
  expect_refusal({"accumulate = 1", "accumulate = 2", "rank 1"}, [&](Communicator& communicator) {
    construct(communicator, {.accumulate = communicator.rank() == 1 ? 2 : 1});
  });
  expect_refusal({"shard = optimizer", "shard = full", "rank 2"}, [&](Communicator& communicator) {
    construct(communicator, {.shard = communicator.rank() == 2 ? Shard::full : Shard::optimizer});
  });
  expect_refusal({"group = 2 does not divide the 3 ranks"}, [&](Communicator& communicator) {
    construct(communicator, {.shard = Shard::full, .group = 2});
  });
  expect_refusal({"group = 1", "shard = gradients"}, [&](Communicator& communicator) {
    construct(communicator, {.shard = Shard::gradients, .group = 1});
  });
  expect_refusal({"shard = optimizer", "reduction = native"}, [&](Communicator& communicator) {
    construct(communicator, {.reduction = Reduction::native, .shard = Shard::optimizer});
  });
  expect_refusal({"replicas = 2", "3 ranks"},
                 [&](Communicator& communicator) { construct(communicator, {.replicas = 2}); });
}

TEST(DataParallel, OnlyFp32IsTrained) {
  ParameterSpace in_f64({{"double", zeros({2}, DType::f64).set_requires_grad()}});
  EXPECT_THROW(DataParallel(in_f64, World::alone(), {}), Error);
  ParameterSpace space(TinyModel().parameters());
  EXPECT_THROW(DataParallel(space, World::alone(), {.accumulate = 0}), Error);
}

}  // namespace
}  // namespace lockstep::data_parallel_test
