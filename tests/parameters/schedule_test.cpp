// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lockstep/parameters/learning_rate.h"

namespace lockstep {
namespace {

ScheduleOptions recipe(Schedule schedule) {
  ScheduleOptions options;
  options.learning_rate = 1.0;
  options.min_lr = 0.5;
  options.warmup_steps = 1;
  options.decay_steps = 20;
  options.schedule = schedule;
  return options;
}

TEST(ScheduleOf, AllRiseAlikeAndFallInTheirOwnWay) {
  const auto cosine = schedule_of(recipe(Schedule::cosine)), wsd = schedule_of(recipe(Schedule::wsd)),
             constant = schedule_of(recipe(Schedule::constant));
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
  ScheduleOptions options = recipe(Schedule::wsd);
  options.cooldown_steps = 10;
  const auto schedule = schedule_of(options);
  EXPECT_EQ(schedule(10), 1.0);
  EXPECT_EQ(schedule(15), 0.75);
  options.cooldown_steps = 0;
  options.warmup_steps = 19;
  EXPECT_EQ(schedule_of(options)(19), 1.0) << "the steps after the warm-up are less than a tenth";
}

}  // namespace
}  // namespace lockstep
