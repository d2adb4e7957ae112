// SPDX-License-Identifier: Apache-2.0
// Scaled losses on all ranks. If one replica overflows, all ranks skip the step, and nothing else changes.
#include "lockstep/parameters/grad_scaler.h"

#include <gtest/gtest.h>
#include <limits>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/parameters/optimizer.h"
#include "tests/dist/momentum.h"
#include "tests/dist/tiny_model.h"

namespace lockstep::grad_scaler_test {
namespace {

constexpr int replicas = 3, all_steps = 6;

/// Returns whether this micro-batch overflows. Some steps overflow in one replica, in one micro-batch of a
/// replica, or everywhere.
bool is_planted(int step, int replica, int micro) {
  return (step == 1 && replica == 2) || (step == 2 && replica == 0 && micro == 1) || step == 4;
}
bool overflows(int step) { return step == 1 || step == 2 || step == 4; }

struct Setting {
  int ranks = 1;
  bool by_owners = true;
  bool is_scaled = true;  ///< if false, the steps that overflow are not run
  Reduction reduction = Reduction::tree;
  Shard shard = Shard::none;
};

struct Outcome {
  std::vector<float> values;  ///< losses and norms of the good steps, then all parameters
  int64_t steps = 0;
  GradScale scale;
};

template <class Kind>
Outcome run_rank(const Setting& setting, const World& world, Kind make_optimizer) {
  const TinyModel model;
  ParameterSpace space(model.parameters());
  GradScaler scaler(space, {.initial_scale = 1024.0, .growth_interval = 2});
  DataParallel ddp(space, world,
                   {.replicas = replicas,
                    .accumulate = 2,
                    .reduction = setting.reduction,
                    .shard = setting.shard,
                    .bucket_bytes = 1200,
                    .scaler = setting.is_scaled ? &scaler : nullptr});
  const auto optimizer = make_optimizer(space);
  Outcome outcome;
  for (int step = 0; step < all_steps; ++step) {
    if (!setting.is_scaled && overflows(step)) continue;
    ddp.begin_step();
    for (const auto& [replica, part, is_empty] : ddp.setup.micro_batches) {
      const Tensor loss = model.loss(batch_of(step, replica, part));
      ddp.backward(is_planted(step, replica, part) ? scale(loss, std::numeric_limits<double>::infinity())
                                                   : loss);
    }
    Tensor norm;
    if (setting.by_owners) {
      ddp.step(*optimizer, learning_rate, max_norm);
      norm = ddp.summary.gradient_norm();
    } else {
      ddp.wait();
      norm = scaler.step(*optimizer, learning_rate, max_norm).norm;
      scaler.update();
    }
    EXPECT_EQ(std::isfinite(item(norm)), !overflows(step)) << "step " << step;
    if (overflows(step)) continue;
    outcome.values.push_back(static_cast<float>(item(ddp.summary.mean_loss())));
    outcome.values.push_back(static_cast<float>(item(norm)));
  }
  for (int unit = 0; unit < static_cast<int>(space.layout.units().size()); ++unit)
    for (const float value : values_of(ddp.values.gather(unit))) outcome.values.push_back(value);
  outcome.steps = optimizer->steps_taken();
  outcome.scale = scaler.state();
  return outcome;
}

template <class Kind>
std::vector<Outcome> run(const Setting& setting, Kind make_optimizer) {
  std::vector<Outcome> outcomes(static_cast<size_t>(setting.ranks));
  run_ranks(setting.ranks, [&](Communicator& communicator) {
    outcomes[static_cast<size_t>(communicator.rank())] =
        run_rank(setting, World(communicator.shared_from_this()), make_optimizer);
  });
  return outcomes;
}

std::unique_ptr<Optimizer> momentum(ParameterSpace& space) { return std::make_unique<Momentum>(space); }
std::unique_ptr<Optimizer> adamw(ParameterSpace& space) {
  return std::make_unique<AdamW>(space, AdamW::Options{.weight_decay = 0.1});
}

// A scale that is a power of two commutes with every rounding. So the bits are those of a run without a
// scale, over the steps that do not overflow.
TEST(GradScalerOnRanks, AllSkipTheStepsThatOverflowOnOne) {
  const Outcome expected = run({.is_scaled = false}, momentum).front();
  const Outcome of_adam = run({}, adamw).front();
  for (const int ranks : {1, 2, 3})
    for (const bool by_owners : {false, true}) {
      const Setting setting{.ranks = ranks, .by_owners = by_owners};
      for (const Outcome& outcome : run(setting, momentum)) {
        EXPECT_EQ(outcome.values, expected.values) << ranks << " ranks, step(): " << by_owners;
        EXPECT_EQ(outcome.steps, 3);
        EXPECT_EQ(outcome.scale, (GradScale{128.0f, 1, 3}));
      }
      for (const Outcome& outcome : run(setting, adamw))
        EXPECT_EQ(outcome.values, of_adam.values) << ranks << " ranks, step(): " << by_owners;
    }
  EXPECT_NE(of_adam.values, expected.values);
}

TEST(GradScalerOnRanks, AllSkipThemWhereTheyAreShardedToo) {
  const Outcome expected = run({.is_scaled = false}, momentum).front();
  const Outcome of_adam = run({}, adamw).front();
  for (const Shard shard : {Shard::optimizer, Shard::gradients, Shard::full}) {
    const Setting setting{.ranks = 3, .shard = shard};
    for (const Outcome& outcome : run(setting, momentum)) {
      EXPECT_EQ(outcome.values, expected.values) << name(shard);
      EXPECT_EQ(outcome.steps, 3);
      EXPECT_EQ(outcome.scale, (GradScale{128.0f, 1, 3}));
    }
    for (const Outcome& outcome : run(setting, adamw))
      EXPECT_EQ(outcome.values, of_adam.values) << name(shard);
  }
}

TEST(GradScalerOnRanks, ANativeReductionDecidesEquallyToo) {
  const std::vector<Outcome> outcomes = run({.ranks = 3, .reduction = Reduction::native}, adamw);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.values, outcomes.front().values);
    EXPECT_EQ(outcome.steps, 3);
    EXPECT_EQ(outcome.scale, (GradScale{128.0f, 1, 3}));
  }
}

TEST(GradScalerOnRanks, WhatWouldMissTheScaleIsRefused) {
  const TinyModel model, other_model;
  ParameterSpace space(model.parameters()), other(other_model.parameters());
  GradScaler scaler(space), stranger(other);
  EXPECT_THROW(DataParallel(space, World::alone(), {.scaler = &stranger}), Error);
  DataParallel ddp(space, World::alone(), {.scaler = &scaler});
  Momentum optimizer(space);
  ddp.backward(model.loss(0));
  EXPECT_THROW(ddp.update(optimizer, max_norm), Error) << "this optimizer counts its steps on the host";
  ddp.step(optimizer, learning_rate);
  EXPECT_THROW(ddp.gather_gradients(), Error);
  ddp.backward(model.loss(1));
  ddp.wait();
  EXPECT_THROW(measure_gradient_norm(space, max_norm), Error);
  EXPECT_THROW(optimizer.step(learning_rate), Error);
  scaler.unscale();
  EXPECT_GT(gradient_norm(space), 0.0);
  scaler.step(optimizer, learning_rate);
  EXPECT_THROW(ddp.backward(model.loss(2)), Error) << "update() is missing";
}

}  // namespace
}  // namespace lockstep::grad_scaler_test
