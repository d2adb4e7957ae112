// SPDX-License-Identifier: Apache-2.0
#include "store/retry.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lockstep
