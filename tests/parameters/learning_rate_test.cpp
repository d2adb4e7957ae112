// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parameters/learning_rate.h"

#include <gtest/gtest.h>

namespace lockstep::learning_rate_test {
namespace {

constexpr CosineSchedule schedule{.peak = 1.0, .floor = 0.2, .warmup_steps = 4, .decay_steps = 12};

TEST(CosineSchedule, WarmsUpInEqualSteps) {
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.2);
  EXPECT_DOUBLE_EQ(schedule.at(1), 0.4);
  EXPECT_DOUBLE_EQ(schedule.at(3), 0.8);
  EXPECT_DOUBLE_EQ(schedule.at(4), 1.0);
}

// A quarter, a half and three quarters of the decay: cosines of 45, 90 and 135 degrees.
TEST(CosineSchedule, FollowsTheCosineToTheFloor) {
  const double root_half = 0.70710678118654752440;
  EXPECT_NEAR(schedule.at(6), 0.2 + 0.4 * (1 + root_half), 1e-15);
  EXPECT_NEAR(schedule.at(8), 0.6, 1e-15);
  EXPECT_NEAR(schedule.at(10), 0.2 + 0.4 * (1 - root_half), 1e-15);
  EXPECT_DOUBLE_EQ(schedule.at(12), 0.2);
  EXPECT_DOUBLE_EQ(schedule.at(1000000), 0.2);
}

TEST(CosineSchedule, NeverRisesAfterWarmUp) {
  for (int64_t step = 4; step < 15; ++step) EXPECT_GE(schedule.at(step), schedule.at(step + 1)) << step;
}

TEST(CosineSchedule, PartsCanBeLeftOut) {
  const CosineSchedule constant{.peak = 0.5};
  EXPECT_EQ(constant.at(0), 0.5);
  EXPECT_EQ(constant.at(12345), 0.5);
  const CosineSchedule no_warmup{.peak = 0.5, .decay_steps = 2};
  EXPECT_EQ(no_warmup.at(0), 0.5);
  EXPECT_NEAR(no_warmup.at(1), 0.25, 1e-16);
  EXPECT_EQ(no_warmup.at(2), 0.0);
  const CosineSchedule only_warmup{.peak = 0.5, .floor = 0.1, .warmup_steps = 4, .decay_steps = 4};
  EXPECT_DOUBLE_EQ(only_warmup.at(3), 0.4);
  EXPECT_EQ(only_warmup.at(4), 0.1);
}

// The recipe of 2000 steps for Shakespeare's text.
TEST(CosineSchedule, ShakespearesRecipe) {
  const CosineSchedule recipe{.peak = 1e-3, .floor = 1e-4, .warmup_steps = 100, .decay_steps = 2000};
  EXPECT_DOUBLE_EQ(recipe.at(0), 1e-3 / 101);
  EXPECT_DOUBLE_EQ(recipe.at(100), 1e-3);
  EXPECT_NEAR(recipe.at(1050), 5.5e-4, 1e-18);
  EXPECT_DOUBLE_EQ(recipe.at(2000), 1e-4);
}

// The rate peaks at 1 from step 4 on, falls along a line over steps 8 to 12, and then stays at 0.2.
TEST(WarmupStableDecay, RisesStaysAndFallsAlongALine) {
  const WarmupStableDecay stable_first{
      .peak = 1.0, .floor = 0.2, .warmup_steps = 4, .decay_steps = 12, .cooldown_steps = 4};
  EXPECT_DOUBLE_EQ(stable_first.at(0), 0.2);
  EXPECT_DOUBLE_EQ(stable_first.at(3), 0.8);
  for (const int64_t stable : {4, 5, 8}) EXPECT_EQ(stable_first.at(stable), 1.0);
  EXPECT_DOUBLE_EQ(stable_first.at(9), 0.8);
  EXPECT_DOUBLE_EQ(stable_first.at(11), 0.4);
  for (const int64_t late : {12, 13, 1000}) EXPECT_EQ(stable_first.at(late), 0.2);
}

TEST(WarmupStableDecay, PartsCanBeLeftOut) {
  const WarmupStableDecay sudden{.peak = 1.0, .floor = 0.5, .decay_steps = 3};
  EXPECT_EQ(sudden.at(2), 1.0);
  EXPECT_EQ(sudden.at(3), 0.5);
  const WarmupStableDecay line{.peak = 1.0, .warmup_steps = 1, .decay_steps = 3, .cooldown_steps = 2};
  EXPECT_EQ(line.at(0), 0.5);
  EXPECT_EQ(line.at(1), 1.0);
  EXPECT_EQ(line.at(2), 0.5);
  EXPECT_EQ(line.at(3), 0.0);
}

}  // namespace
}  // namespace lockstep::learning_rate_test
