// SPDX-License-Identifier: Apache-2.0
// A NaN or an exception of one rank reaches all ranks.
#include <cmath>
#include <gtest/gtest.h>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/core/error.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/tensor/autograd.h"
#include "tests/dist/momentum.h"
#include "tests/dist/tiny_model.h"
#include "tests/support/user_error.h"

namespace lockstep::data_parallel_failures_test {
namespace {

constexpr Shard stages[] = {Shard::none, Shard::optimizer, Shard::gradients, Shard::full};

TEST(DataParallelFailures, NotANumberReachesEveryRankAndUpdatesNothing) {
  for (const bool overlap : {false, true})
    for (const Shard stage : stages)
      run_ranks(3, [&](Communicator& communicator) {
        const TinyModel model;
        ParameterSpace space(model.parameters());
        DataParallel ddp(space, World(communicator.shared_from_this()),
                         {.replicas = 7, .shard = stage, .overlap = overlap});
        Momentum optimizer(space);
        ddp.begin_step();
        for (const MicroBatch& one : ddp.setup.micro_batches)
          ddp.backward(scale(model.loss(0), one.replica == 4 && !one.is_empty ? NAN : 1.0));
        ddp.step(optimizer, learning_rate);
        EXPECT_TRUE(std::isnan(item(ddp.summary.mean_loss())));
        EXPECT_TRUE(std::isnan(item(ddp.summary.gradient_norm())));
        ddp.together([&] { EXPECT_EQ(values_of(model.out), values_of(TinyModel().out)) << name(stage); });
        if (ddp.setup.sharding.cuts_gradients()) return;
        ddp.gather_gradients();
        for (const float value : values_of(model.out.grad())) ASSERT_TRUE(std::isnan(value));
      });
}

TEST(DataParallelFailures, WhatAnEmptyMicroBatchFindsDoesNotCount) {
  for (const Shard stage : {Shard::gradients, Shard::full})
    run_ranks(3, [&](Communicator& communicator) {
      const TinyModel model;
      ParameterSpace space(model.parameters());
      DataParallel ddp(space, World(communicator.shared_from_this()), {.replicas = 7, .shard = stage});
      Momentum optimizer(space);
      ddp.begin_step();
      for (const MicroBatch& one : ddp.setup.micro_batches) {
        EXPECT_EQ(one.is_empty, communicator.rank() > 0 && &one == &ddp.setup.micro_batches.back());
        ddp.backward(scale(model.loss(0), one.is_empty ? NAN : 1.0));
      }
      ddp.step(optimizer, learning_rate);
      EXPECT_FALSE(std::isnan(item(ddp.summary.mean_loss())));
      EXPECT_FALSE(std::isnan(item(ddp.summary.gradient_norm())));
    });
}

TEST(DataParallelFailures, ARankThatThrowsEndsAllOfThemWithItsOwnException) {
  for (const bool overlap : {false, true})
    for (const bool shared_memory : {false, true})
      for (const Shard stage : stages)
        for (const int bad_replica : {2, 3}) {
          const std::string failure = user_error([&] {
            run_ranks(3, [&](Communicator& communicator) {
              communicator.set_timeout(1e6);
              const TinyModel model;
              ParameterSpace space(model.parameters());
              DataParallel ddp(space, World(communicator.shared_from_this()),
                               {.replicas = 6,
                                .shard = stage,
                                .bucket_bytes = 4,
                                .overlap = overlap,
                                .shared_memory = shared_memory});
              Momentum optimizer(space);
              ddp.begin_step();
              for (const MicroBatch& one : ddp.setup.micro_batches) {
                require(one.replica != bad_replica, "the data of replica ", one.replica, " are gone");
                ddp.backward(model.loss(0));
              }
              ddp.step(optimizer, learning_rate);
            });
          });
          EXPECT_EQ(failure, concat("the data of replica ", bad_replica, " are gone")) << name(stage);
        }
}

}  // namespace
}  // namespace lockstep::data_parallel_failures_test
