// SPDX-License-Identifier: Apache-2.0
#include "train/schedule.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TrainConfig recipe(const std::string& schedule) {
  TrainConfig train;
  train.learning_rate = 1.0;
  train.min_lr = 0.5;
  train.warmup_steps = 1;
  train.decay_steps = 20;
  train.schedule = schedule;
  return train;
}

TEST(ScheduleOf, AllRiseAlikeAndFallInTheirOwnWay) {
  const auto cosine = schedule_of(recipe("cosine")), wsd = schedule_of(recipe("wsd")),
             constant = schedule_of(recipe("constant"));
  for (const auto& schedule : {cosine, wsd, constant}) {
    EXPECT_EQ(schedule(0), 0.5);
    EXPECT_EQ(schedule(1), 1.0);
  }
  EXPECT_LT(cosine(10), 0.8);
  EXPECT_EQ(wsd(18), 1.0) << "the default cooldown is a tenth of the steps";
  EXPECT_EQ(wsd(19), 0.75);
  EXPECT_EQ(wsd(20), 0.5);
  EXPECT_EQ(cosine(20), 0.5);
  EXPECT_EQ(constant(1000), 1.0);
}

TEST(ScheduleOf, TheCooldownIsConfigured) {
  TrainConfig train = recipe("wsd");
  train.cooldown_steps = 10;
  const auto schedule = schedule_of(train);
  EXPECT_EQ(schedule(10), 1.0);
  EXPECT_EQ(schedule(15), 0.75);
  train.cooldown_steps = 0;
  train.warmup_steps = 19;
  EXPECT_EQ(schedule_of(train)(19), 1.0) << "the steps after the warm-up are less than a tenth";
}

}  // namespace
}  // namespace lockstep
