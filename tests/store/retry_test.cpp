// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <gtest/gtest.h>

#include "lockstep/store/http.h"
#include "tests/support/user_error.h"

namespace lockstep {
namespace {

TEST(Retry, DelaysDoubleUpToTheLongest) {
  const RetryPolicy policy{.attempts = 8, .first_delay_seconds = 0.5, .longest_delay_seconds = 3.0};
  EXPECT_EQ(policy.delay_seconds(1), 0.5);
  EXPECT_EQ(policy.delay_seconds(2), 1.0);
  EXPECT_EQ(policy.delay_seconds(3), 2.0);
  EXPECT_EQ(policy.delay_seconds(4), 3.0);
  EXPECT_EQ(policy.delay_seconds(1000), 3.0);
}

TEST(Retry, TriesAgainOnlyWhatMayWork) {
  const RetryPolicy policy{.attempts = 3, .first_delay_seconds = 0.001};
  int calls = 0;
  EXPECT_EQ(with_retries(policy,
                         [&] {
                           if (++calls < 3) throw TransientError("busy");
                           return 7;
                         }),
            7);
  EXPECT_EQ(calls, 3);
  calls = 0;
  try {
    with_retries(policy, [&]() -> int {
      ++calls;
      throw TransientError("busy");
    });
    FAIL() << "nothing was thrown";
  } catch (const TransientError&) {
    FAIL() << "an outer with_retries() would try again";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "busy (given up after 3 attempts)");
  }
  EXPECT_EQ(calls, 3);
  calls = 0;
  EXPECT_THROW(with_retries(policy,
                            [&]() -> int {
                              ++calls;
                              throw UserError("wrong");
                            }),
               UserError);
  EXPECT_EQ(calls, 1);
}

/// Runs a call that fails until `outage_seconds` have passed on a clock that only sleeping moves. Returns the
/// warnings that were logged.
std::string warnings_of(const RetryPolicy& policy, double outage_seconds) {
  Clock::time_point now = Clock::now();
  const Clock::time_point end = now + clock_duration(outage_seconds);
  const RetryClock clock = {.now = [&] { return now; },
                            .sleep = [&](double seconds) { now += clock_duration(seconds); }};
  RetryPolicy with_clock = policy;
  with_clock.clock = &clock;
  testing::internal::CaptureStderr();
  try {
    with_retries(with_clock, [&] {
      if (now < end) throw TransientError("s3://bucket: no answer");
    });
  } catch (const Error& problem) {
    return testing::internal::GetCapturedStderr() + problem.what();
  }
  return testing::internal::GetCapturedStderr();
}

TEST(Retry, AnOutageIsWaitedForAndToldEachMinute) {
  const RetryPolicy policy{.outage_seconds = 600.0};
  EXPECT_EQ(warnings_of(policy, 5.0), "") << "a short one is no news";
  const std::string almost = warnings_of(policy, 590.0);
  EXPECT_EQ(std::count(almost.begin(), almost.end(), '\n'), 10) << almost;
  expect_contains(almost, {"s3://bucket: no answer; tried ", " times in 1", " s; trying for another 5"});
  const std::string longer = warnings_of(policy, 3000.0);
  expect_contains(longer, {"(given up after ", " attempts in 60"});
  EXPECT_EQ(std::count(longer.begin(), longer.end(), '\n'), 10) << longer;
  EXPECT_EQ(warnings_of({.attempts = 3}, 3000.0), "s3://bucket: no answer (given up after 3 attempts)");
}

}  // namespace
}  // namespace lockstep
