// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <gtest/gtest.h>
#include <sstream>

#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "lockstep/core/shape.h"
#include "lockstep/core/text.h"
#include "lockstep/kernels/random.h"
#include "support/foreign_locale.h"

namespace lockstep::locale_test {
namespace {

TEST(Locale, DoesNotShowInTexts) {
  const ForeignLocale foreign;
  std::ostringstream stream;
  stream << 1234567 << " " << 0.5;
  ASSERT_EQ(stream.str(), "1.234.567 0,5") << "this locale would show";
  EXPECT_EQ(concat("step-", 12345, " ", 1234567LL, " ", 0.25, " ", 2.5e6f),
            "step-12345 1234567 0.25 2.5e+06");
  EXPECT_EQ(concat(Shape{50257, 4096}), "[50257, 4096]") << "a type with operator<<";
  const std::atomic<int> count{98765};
  EXPECT_EQ(concat(count), "98765");
  EXPECT_EQ(zero_padded(12345, 8), "00012345");
  EXPECT_EQ(hexadecimal(uint64_t{1} << 40, 4), "10000000000");
  EXPECT_EQ(fixed_text(12345.678, 2), "12345.68");
  EXPECT_EQ(exact_text(0.75), "0x1.8p-1");
  EXPECT_EQ(counted(54321, "step"), "54321 steps");
  EXPECT_EQ(bytes_text(1.5 * 1024 * 1024), "1.5 MiB");
  EXPECT_EQ(number_in<int64_t>("1234567"), 1234567);
  EXPECT_EQ(number_in<double>("0.5"), 0.5);
  EXPECT_EQ(lower_case("Content-LENGTH@[`{ \xC4I"), "content-length@[`{ \xC4i");
  EXPECT_EQ(upper_case("0x7fi \xE4"), "0X7FI \xE4");
  EXPECT_EQ(describe(Ending{.exit_code = 1234}), "exit code 1234");
  EXPECT_EQ(describe(Ending{.signal = SIGSEGV}), "SIGSEGV (segmentation fault)");
  EXPECT_EQ(describe(Ending{.signal = 40}), "signal 40") << "a signal without a name";
}

TEST(Locale, ExactTextIsThatOfPrintf) {
  const auto expect_printed = [](double number) {
    std::array<char, 40> text;
    std::snprintf(text.data(), text.size(), "%a", number);
    EXPECT_EQ(exact_text(number), text.data());
  };
  for (const double number : {0.0, -0.0, 1.0, -3.0, 0.02, 1e300, 5e-324, 1e-310, HUGE_VAL, -HUGE_VAL})
    expect_printed(number);
  for (uint32_t i = 0; i < 1000; ++i) {
    const auto words = philox(1, {i, 0, 0, 0});
    const double number = std::bit_cast<double>(uint64_t{words[0]} << 32 | words[1]);
    if (!std::isnan(number)) expect_printed(number);
  }
}

}  // namespace
}  // namespace lockstep::locale_test
