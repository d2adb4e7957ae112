// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lockstep/elastic/supervisor.h"

namespace lockstep {
namespace {

TEST(RestartBudget, WaitsDoubleUpToHalfAMinute) {
  RestartBudget budget(10);
  for (const double wait : {0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0})
    EXPECT_DOUBLE_EQ(budget.next_wait(-1).value(), wait);
  EXPECT_FALSE(budget.next_wait(-1).has_value());
}

TEST(RestartBudget, ANewerSnapshotRefillsIt) {
  RestartBudget budget(2);
  for (int64_t step = 0; step < 100; ++step) EXPECT_DOUBLE_EQ(budget.next_wait(step).value(), 0.2);
  EXPECT_DOUBLE_EQ(budget.next_wait(99).value(), 0.4);
  EXPECT_FALSE(budget.next_wait(50).has_value());
}

TEST(RestartBudget, NoneIsNone) { EXPECT_FALSE(RestartBudget(0).next_wait(7).has_value()); }

}  // namespace
}  // namespace lockstep
