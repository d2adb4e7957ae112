// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/elementary.h"

#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <numbers>

#include "lockstep/kernels/random.h"

namespace lockstep::elementary_test {
namespace {

using Function = double (*)(double);
using Reference = std::function<long double(long double)>;

/// Returns the largest error in units in the last place over random arguments. `draw` makes each argument
/// from a number in [0, 1).
double worst_ulp(Function function, const Reference& reference, const std::function<double(double)>& draw) {
  double worst = 0.0;
  for (uint32_t i = 0; i < 200'000; ++i) {
    const auto words = philox(1, {i, 0, 0, 0});
    const double x = draw((words[0] * 0x1p32 + words[1]) * 0x1p-64);
    const double y = function(x);
    const long double exact = reference(x);
    const auto rounded = static_cast<double>(exact);
    if (std::isinf(rounded)) {
      EXPECT_EQ(y, rounded) << x;
      continue;
    }
    const double magnitude = std::max(std::fabs(rounded), std::numeric_limits<double>::min());
    const double ulp = std::nextafter(magnitude, INFINITY) - magnitude;
    const auto error = static_cast<double>(std::fabs(y - exact) / ulp);
    EXPECT_FALSE(std::isnan(error)) << x;
    worst = std::max(worst, error);
  }
  return worst;
}

std::function<double(double)> uniform(double low, double high) {
  return [=](double u) { return low + (high - low) * u; };
}
/// Draws from 2^low to 2^high.
std::function<double(double)> spread(double low, double high) {
  return [=](double u) { return std::exp2(low + (high - low) * u); };
}
std::function<double(double)> negative(const std::function<double(double)>& draw) {
  return [=](double u) { return -draw(u); };
}

TEST(Elementary, ExpIsWithinOneUlp) {
  const auto exact = [](long double x) { return std::exp(x); };
  for (const auto& draw : {uniform(-750, 712), uniform(-1, 1), spread(-60, 9), negative(spread(-60, 9))})
    EXPECT_LE(worst_ulp(math::exp, exact, draw), 1.0);
}

TEST(Elementary, LogIsWithinOneUlp) {
  const auto exact = [](long double x) { return std::log(x); };
  for (const auto& draw :
       {spread(-1074, 1024), uniform(0.4, 2.2), uniform(0.999, 1.001), uniform(0x1p-32, 1)})
    EXPECT_LE(worst_ulp(math::log, exact, draw), 1.0);
}

/// Returns sin(2 pi x). Reduces the argument so far that it keeps all its digits.
long double exact_sin_of_turns(long double x) {
  const long double t = x - std::rint(x), sign = t < 0 ? -1 : 1,
                    half = std::min(std::fabs(t), 0.5L - std::fabs(t));
  constexpr long double two_pi = 2 * std::numbers::pi_v<long double>;
  return sign * (half <= 0.125L ? std::sin(two_pi * half) : std::cos(two_pi * (0.25L - half)));
}

TEST(Elementary, SineAndCosineAreWithinTwoUlp) {
  const auto exact_cos = [](long double x) {
    return exact_sin_of_turns(0.25L - std::fabs(x - std::rint(x)));
  };
  for (const auto& draw : {uniform(-2, 2), spread(-60, 4), negative(spread(-60, 4)), uniform(0, 1)}) {
    EXPECT_LE(worst_ulp(math::sin_of_turns, exact_sin_of_turns, draw), 2.0);
    EXPECT_LE(worst_ulp(math::cos_of_turns, exact_cos, draw), 2.0);
  }
}

TEST(Elementary, TanhAndErfKeepTheirDigits) {
  for (const auto& draw : {uniform(-7, 7), spread(-60, 5), negative(spread(-60, 5))}) {
    EXPECT_LE(worst_ulp(
                  math::tanh, [](long double x) { return std::tanh(x); }, draw),
              3.0);
    EXPECT_LE(worst_ulp(
                  math::erf, [](long double x) { return std::erf(x); }, draw),
              10.0);
  }
}

TEST(Elementary, LimitsAndQuartersAreExact) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(math::exp(0.0), 1.0);
  EXPECT_EQ(math::exp(-infinity), 0.0);
  EXPECT_EQ(math::exp(infinity), infinity);
  EXPECT_EQ(math::log(1.0), 0.0);
  EXPECT_EQ(math::log(0.0), -infinity);
  EXPECT_EQ(math::log(infinity), infinity);
  EXPECT_TRUE(std::isnan(math::log(-1.0)));
  EXPECT_EQ(math::tanh(-infinity), -1.0);
  EXPECT_TRUE(std::signbit(math::tanh(-0.0)));
  EXPECT_EQ(math::erf(infinity), 1.0);
  for (const Function function : {math::exp, math::log, math::tanh, math::erf})
    EXPECT_TRUE(std::isnan(function(nan)));
  for (int quarter = -8; quarter <= 8; ++quarter) {
    const double expected[] = {0.0, 1.0, 0.0, -1.0};
    EXPECT_EQ(math::sin_of_turns(0.25 * quarter), expected[quarter & 3]);
    EXPECT_EQ(math::cos_of_turns(0.25 * quarter), expected[(quarter + 1) & 3]);
  }
  EXPECT_EQ(math::power(0.5, 0), 1.0);
  EXPECT_EQ(math::power(3.0, 13), 1594323.0);
}

// The compiler that folds constants and the processor must produce the same bits.
TEST(Elementary, CompilersAndProcessorsAgree) {
  constexpr double folded[] = {math::exp(0.3),          math::log(0.3),  math::sin_of_turns(0.3),
                               math::cos_of_turns(0.3), math::tanh(0.7), math::erf(2.5)};
  volatile double x[] = {0.3, 0.3, 0.3, 0.3, 0.7, 2.5};
  const Function functions[] = {math::exp,          math::log,  math::sin_of_turns,
                                math::cos_of_turns, math::tanh, math::erf};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(functions[i](x[i]), folded[i]);
}

}  // namespace
}  // namespace lockstep::elementary_test
