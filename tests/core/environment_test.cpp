// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/environment.h"

#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

namespace lockstep {
namespace {

constexpr const char* tested = "LOCKSTEP_TEST_OF_THE_ENVIRONMENT";

TEST(Environment, UnsetAndEmptyVariablesDiffer) {
  ::unsetenv(tested);
  EXPECT_FALSE(environment_if_set(tested));
  EXPECT_EQ(environment(tested), "");
  EXPECT_EQ(number_from_environment(tested, 7), 7);
  ::setenv(tested, "", 1);
  EXPECT_EQ(environment_if_set(tested), "");
  EXPECT_EQ(number_from_environment(tested, 7), 0);
  ::setenv(tested, "12 ranks", 1);
  EXPECT_EQ(environment_if_set(tested), "12 ranks");
  EXPECT_EQ(number_from_environment(tested, 7), 12);
  ::unsetenv(tested);
}

TEST(Environment, AnErasedValueIsNoLongerInMemory) {
  std::string entry = std::string(tested) + "=secret";
  ::putenv(entry.data());
  EXPECT_EQ(environment(tested), "secret");
  erase_from_environment(tested);
  EXPECT_FALSE(environment_if_set(tested));
  EXPECT_EQ(std::ranges::count(entry, '\0'), 6) << entry;
  erase_from_environment(tested);  // an unset variable may be erased
}

}  // namespace
}  // namespace lockstep
