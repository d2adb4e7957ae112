// SPDX-License-Identifier: Apache-2.0
#include "core/error.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Error, ConcatJoinsWhatAStreamPrints) {
  EXPECT_EQ(concat("a", 1, ' ', 2.5, std::string("b")), "a1 2.5b");
}

TEST(Error, ExpectSaysWhatAndWhere) {
  const int line = __LINE__ + 2;
  try {
    expect(1 + 1 == 3, "one and one are ", 1 + 1, ", not ", 3);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "one and one are 2, not 3");
    EXPECT_EQ(error.where(), concat(__FILE__, ":", line));
    EXPECT_EQ(dynamic_cast<const UserError*>(&error), nullptr);
  }
}

TEST(Error, RequireBlamesTheUser) {
  const int line = __LINE__ + 2;
  try {
    require(false, "train.steps is ", -1);
    FAIL() << "nothing was thrown";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "train.steps is -1");
    EXPECT_EQ(error.where(), concat(__FILE__, ":", line));
  }
}

TEST(Error, NothingHappensWhereTheConditionHolds) {
  EXPECT_NO_THROW(expect(true, "unused"));
  EXPECT_NO_THROW(require(true, "unused"));
}

TEST(Error, AThrownErrorKnowsItsLineToo) {
  const int line = __LINE__ + 1;
  const Error error("message");
  EXPECT_EQ(error.where(), concat(__FILE__, ":", line));
}

}  // namespace
}  // namespace lockstep
