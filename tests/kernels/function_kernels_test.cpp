// SPDX-License-Identifier: Apache-2.0
// Sigmoid, SiLU, roots and powers.
#include "kernels/expectations.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/math.h"
#include "lockstep/kernels/power.h"
#include "lockstep/kernels/sigmoid.h"

namespace lockstep::testing {
namespace {

double logistic_reference(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// Compares the kernel K{x, y} with `reference`, on one thread and in place on three.
template <class K>
void check_function(double low, double high, double compute_roundings, double (*reference)(double)) {
  for (const DType dtype : float_types)
    for (const int64_t size : {1, 7, 513, 40000}) {
      Values x = Values::uniform({size}, dtype, 1, low, high), y({size}, dtype);
      launch_on(1, K{x.view(), y.view()});
      const double compute = dtype == DType::f64 ? 0x1p-52 : 0x1p-23;
      expect_close(
          y, [&](int64_t i) { return reference(x[i]); }, epsilon_of(dtype) + compute_roundings * compute,
          dtype == DType::f16 ? 0x1p-24 : 0.0);
      launch_on(3, K{x.view(), x.view()});
      EXPECT_TRUE(x == y) << K::name << " " << dtype;
    }
}

TEST(FunctionKernels, MatchReference) {
  check_function<SigmoidForward>(-12.0, 12.0, 4, logistic_reference);
  check_function<SiluForward>(-12.0, 12.0, 5, [](double x) { return x * logistic_reference(x); });
  check_function<Sqrt>(0.0, 9.0, 0, [](double x) { return std::sqrt(x); });
  check_function<Rsqrt>(0.01, 9.0, 2, [](double x) { return 1.0 / std::sqrt(x); });
}

/// Returns all fp32 numbers whose bits are multiples of `step`, and a few special ones.
std::vector<float> spread_floats(uint32_t step) {
  std::vector<float> numbers = {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN, 0x1p-149f, 0x1p24f};
  for (uint64_t word = 0; word < uint64_t{1} << 32; word += step)
    numbers.push_back(std::bit_cast<float>(static_cast<uint32_t>(word)));
  return numbers;
}

// pow() rounds a double whose relative error is below 2^-37. So the result is one of the two floats next to
// the exact one: within half a unit and a little.
TEST(FunctionKernels, PowersAreRoundedOnce) {
  const std::vector<float> bases = spread_floats(0x01234567);
  for (const float exponent : {0.0f, 1.0f, 2.0f, 3.0f, -1.0f, 0.5f, -0.5f, 1.7f, -3.0f, 33.0f, -7.25f, 0.001f,
                               INFINITY, -INFINITY, NAN, 16777216.0f, 16777215.0f, 1e30f})
    for (const float base : bases) {
      const double exact = std::pow(static_cast<double>(base), static_cast<double>(exponent));
      const float expected = static_cast<float>(exact), actual = math::pow(base, exponent);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(actual)) << base << "^" << exponent << " is " << actual;
        continue;
      }
      ASSERT_EQ(std::signbit(actual), std::signbit(expected)) << base << "^" << exponent;
      if (std::isinf(expected) || expected == 0.0f || std::isinf(actual)) {
        ASSERT_EQ(actual, expected) << base << "^" << exponent;
        continue;
      }
      const double unit = std::nextafter(std::fabs(expected), INFINITY) - std::fabs(expected);
      ASSERT_LE(std::fabs(static_cast<double>(actual) - exact), (0.5 + 0x1p-12) * unit)
          << base << "^" << exponent << " is " << actual;
    }
}

TEST(FunctionKernels, PowersInDoubleMatchTheLibrary) {
  for (const double base : {0.0, -0.0, 0.3, 1.0, 7.5, 1e20, -2.0, -1.0, double{INFINITY}, -double{INFINITY}})
    for (const double exponent :
         {0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 0.5, 1.7, 65.0, -65.0, double{INFINITY}, -double{INFINITY}}) {
      const double expected = std::pow(base, exponent), actual = math::pow(base, exponent);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(actual)) << base << "^" << exponent;
        continue;
      }
      EXPECT_EQ(std::signbit(actual), std::signbit(expected)) << base << "^" << exponent;
      if (actual == expected) continue;
      if (std::isinf(expected) || expected == 0.0) {
        EXPECT_EQ(actual, expected) << base << "^" << exponent;
      } else {
        const double size = 1.0 + std::fabs(exponent * std::log(std::fabs(base)));
        EXPECT_NEAR(actual / expected, 1.0, 4 * 0x1p-52 * size) << base << "^" << exponent;
      }
    }
}

}  // namespace
}  // namespace lockstep::testing
