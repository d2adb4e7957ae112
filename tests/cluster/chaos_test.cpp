// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/cluster/chaos_run.h"
#include "tests/support/cluster.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

TEST(Chaos, StruckRunsAreEqualToTheUndisturbedOne) {
  if (!has_mpirun()) LOCKSTEP_SKIP_OR_FAIL("there is no mpirun");
  const TemporaryDirectory directory;
  const std::string report = directory / "report.md";
  const Outcome outcome =
      run_command(program("chaos") + " --runs 4 --resizes 2 --seed 3 --steps 150 --folder " +
                      (directory / "runs") + " --report " + report,
                  500);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.errors;
  EXPECT_NE(read_text(report).find("**6 of 6 runs are equal.**"), std::string::npos) << read_text(report);
}

TEST(Chaos, PlansAreAFunctionOfTheSeed) {
  bool has_resized_up = false, has_resized_down = false;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const ChaosPlan plan = make_plan(seed, true, 300);
    const ChaosPlan again = make_plan(seed, true, 300);
    ASSERT_EQ(plan.strikes.size(), 1U);
    EXPECT_EQ(plan.strikes[0].at_step, again.strikes[0].at_step);
    EXPECT_EQ(plan.strikes[0].signal, again.strikes[0].signal);
    EXPECT_GE(plan.ranks, 2);
    EXPECT_LE(plan.ranks, 4);
    const int after = plan.strikes[0].ranks_after;
    EXPECT_NE(after, plan.ranks);
    EXPECT_GE(after, 1);
    EXPECT_LE(after, 4);
    has_resized_up |= after > plan.ranks;
    has_resized_down |= after < plan.ranks;
  }
  EXPECT_TRUE(has_resized_up && has_resized_down);
}

}  // namespace
}  // namespace lockstep
