// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/math.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "lockstep/kernels/cpu/gelu.h"

namespace lockstep {
namespace {

using Function = float (*)(float);
using Reference = long double (*)(long double);

/// Returns the largest error in units in the last place over every 1009th float, including infinities and
/// NaNs. Since 1009 is prime, all exponents and signs occur.
double worst_ulp(Function function, Reference reference) {
  double worst = 0.0;
  for (uint64_t word = 0; word <= 0xffffffffu; word += 1009) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(word));
    const float y = function(x);
    const long double exact = reference(x);
    const float rounded = static_cast<float>(exact);
    if (std::isnan(rounded) || std::isinf(rounded)) {
      const bool equal = std::isnan(rounded)
                             ? std::isnan(y)
                             : y == rounded || (std::copysign(y, rounded) == y && std::fabs(y) > 3.402e38f);
      EXPECT_TRUE(equal) << "of " << x << " is " << y;
      continue;
    }
    EXPECT_FALSE(std::isnan(y)) << "of " << x;
    const float magnitude = std::max(std::fabs(rounded), std::numeric_limits<float>::min());
    const float ulp = std::nextafter(magnitude, std::numeric_limits<float>::infinity()) - magnitude;
    const auto error = static_cast<double>(std::fabs(y - exact) / ulp);
    worst = error <= worst ? worst : error;
  }
  return worst;
}

TEST(Math, ExpIsWithinOneUlp) {
  const auto flushed = [](long double x) { return std::exp(x) < 0x1p-126L ? 0.0L : std::exp(x); };
  EXPECT_LE(worst_ulp(math::exp, flushed), 1.0);
}
TEST(Math, Exp2IsWithinTwoUlp) {
  const auto flushed = [](long double x) { return std::exp2(x) < 0x1p-126L ? 0.0L : std::exp2(x); };
  EXPECT_LE(worst_ulp(math::exp2, flushed), 2.0);
}
TEST(Math, LogIsWithinOneUlp) { EXPECT_LE(worst_ulp(math::log, std::log), 1.0); }
TEST(Math, TanhIsWithinTwoUlp) { EXPECT_LE(worst_ulp(math::tanh, std::tanh), 2.0); }
TEST(Math, ErfIsWithinTwoUlp) { EXPECT_LE(worst_ulp(math::erf, std::erf), 2.0); }

TEST(Math, LimitsAreExact) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(math::exp(-infinity), 0.0f);
  EXPECT_EQ(math::exp(infinity), infinity);
  EXPECT_EQ(math::exp2(-infinity), 0.0f);
  EXPECT_EQ(math::exp2(infinity), infinity);
  EXPECT_EQ(math::exp2(127.0f), 0x1p127f);
  EXPECT_EQ(math::exp(0.0f), 1.0f);
  EXPECT_EQ(math::log(0.0f), -infinity);
  EXPECT_EQ(math::log(1.0f), 0.0f);
  EXPECT_TRUE(std::isnan(math::log(-1.0f)));
  EXPECT_EQ(math::tanh(infinity), 1.0f);
  EXPECT_EQ(math::erf(-infinity), -1.0f);
  EXPECT_TRUE(std::signbit(math::tanh(-0.0f)));
}

/// A loop's result for an element must not depend on the element's position.
TEST(Math, LoopsOfEveryLengthGiveTheSameBits) {
  constexpr int64_t size = 300;
  std::vector<float> x(size), whole(size);
  for (int64_t i = 0; i < size; ++i) x[i] = 0.057f * static_cast<float>(i - 150);
  const auto apply = [](const float* from, float* to, int64_t count) {
    for (int64_t i = 0; i < count; ++i) to[i] = math::exp(from[i]) + math::tanh(from[i]) + math::erf(from[i]);
    std::vector<float> values(from, from + count);
    gelu::backward<Gelu::tanh>(from, to, to, count);
    gelu::backward<Gelu::erf>(from, to, to, count);
    gelu::forward<Gelu::tanh>(from, values.data(), count);
    gelu::forward<Gelu::erf>(values.data(), values.data(), count);
    for (int64_t i = 0; i < count; ++i) to[i] += values[i];
  };
  apply(x.data(), whole.data(), size);
  for (int64_t begin = 0; begin < size; begin += 7)
    for (int64_t count = 1; begin + count <= size; count += 5) {
      std::vector<float> part(count);
      apply(x.data() + begin, part.data(), count);
      for (int64_t i = 0; i < count; ++i)
        ASSERT_EQ(part[i], whole[begin + i]) << begin << " " << count << " " << i;
    }
}

}  // namespace
}  // namespace lockstep
