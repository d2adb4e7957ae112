// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.h"

#include <cstdint>
#include <filesystem>
#include <gtest/gtest.h>
#include <limits>
#include <sstream>
#include <string_view>

#include "lockstep/core/dtype.h"
#include "lockstep/core/shape.h"

namespace lockstep {
namespace {

template <class T>
void expect_as_printed(const T& value) {
  std::ostringstream stream;
  stream << value;
  EXPECT_EQ(concat(value), stream.str());
}

template <class... T>
void expect_printed(const T&... values) {
  (expect_as_printed(values), ...);
}

TEST(Error, ConcatJoinsWhatAStreamPrints) {
  EXPECT_EQ(concat("a", 1, ' ', 2.5, std::string("b")), "a1 2.5b");
  using Limits = std::numeric_limits<double>;
  expect_printed(0.0, -0.0, 0.1f, 1.0 / 3, 100000.0, 1e6, 1234567.0, 123456.5, 1e-4, 1e-5, -2.5e-300, 1e300);
  expect_printed(Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), Limits::max(),
                 Limits::denorm_min());
  expect_printed(true, false, 'x', '\0', uint16_t{65535}, int16_t{-7}, std::numeric_limits<int64_t>::min(),
                 std::numeric_limits<uint64_t>::max());
  expect_printed("literal", std::string("a\0b", 3), std::string_view("view"));
  expect_printed(Shape{2, 3}, DType::bf16, std::filesystem::path("/a b"));
  const int place = 0;
  expect_printed(static_cast<const void*>(&place));
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
