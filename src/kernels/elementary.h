// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace lockstep::math {

// Elementary functions of double. C libraries differ in the last bits of theirs. These functions are
// additions, multiplications and divisions of IEEE 754 in a fixed order, so they have the same bits
// everywhere. Their coefficients are those of the Taylor series, which needs few terms after the argument is
// reduced.

/// Returns the integer nearest to x for |x| < 2^51, halves to even.
constexpr double nearest_integer(double x) {
  constexpr double shift = 0x1.8p52;
  return (x + shift) - shift;
}

/// Returns 2^n for the exponents of normal numbers.
constexpr double power_of_two(int64_t n) {
  return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52);
}

/// Returns x^exponent by squaring, for exponent >= 0.
constexpr double power(double x, int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent /= 2, x *= x)
    if (exponent % 2 == 1) result *= x;
  return result;
}

/// log(2) as a sum. The upper part has 21 trailing zeros, so its product with an exponent is exact.
inline constexpr double upper_log_of_2 = 0x1.62e42fee00000p-1, lower_log_of_2 = 0x1.a39ef35793c76p-33;

/// Returns {coefficient(0), coefficient(1), ...}.
template <size_t terms, class Coefficient>
constexpr std::array<double, terms> series(Coefficient coefficient) {
  std::array<double, terms> values{};
  for (size_t i = 0; i < terms; ++i) values[i] = coefficient(static_cast<int>(i));
  return values;
}

/// 1 / k!. The factorial is exact for k <= 18.
constexpr double inverse_factorial(int k) {
  double factorial = 1.0;
  for (int i = 2; i <= k; ++i) factorial *= i;
  return 1.0 / factorial;
}

/// (e^x - 1 - x) / x^2, coefficients of the powers of x.
inline constexpr auto exp_series = series<16>([](int i) { return inverse_factorial(i + 2); });
/// (sin(x) - x) / x^3, coefficients of the powers of x^2.
inline constexpr auto sin_series =
    series<8>([](int i) { return (i % 2 == 0 ? -1 : 1) * inverse_factorial(2 * i + 3); });
/// (cos(x) - 1 + x^2 / 2) / x^4, coefficients of the powers of x^2.
inline constexpr auto cos_series =
    series<8>([](int i) { return (i % 2 == 0 ? 1 : -1) * inverse_factorial(2 * i + 4); });
/// (2 artanh(x) / x - 2) / x^2, coefficients of the powers of x^2.
inline constexpr auto artanh_series = series<11>([](int i) { return 2.0 / (2 * i + 3); });

/// The sum of coefficients[i] * x^i, by Horner's rule.
template <size_t terms>
constexpr double polynomial(double x, const std::array<double, terms>& coefficients) {
  double sum = coefficients[terms - 1];
  for (size_t i = terms - 1; i > 0; --i) sum = sum * x + coefficients[i - 1];
  return sum;
}

/// e^x - 1 for |x| < 0.7.
constexpr double exp_minus_1_near_zero(double x) { return x + x * x * polynomial(x, exp_series); }

/// e^x, 1 ulp.
constexpr double exp(double x) {
  constexpr double highest = 710.0, lowest = -746.0;
  if (x != x) return x;
  if (x > highest) return std::numeric_limits<double>::infinity();
  if (x < lowest) return 0.0;
  const double n = nearest_integer(x * 1.44269504088896340736);
  const double r = (x - n * upper_log_of_2) - n * lower_log_of_2;
  const double mantissa = 1.0 + exp_minus_1_near_zero(r);
  // Multiplies in two steps, since 2^n alone may be too large or too small for a double.
  const auto exponent = static_cast<int64_t>(n);
  const int64_t half = exponent / 2;
  return mantissa * power_of_two(half) * power_of_two(exponent - half);
}

/// Natural logarithm, 1 ulp.
constexpr double log(double x) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (x == 0.0) return -infinity;
  if (!(x > 0.0)) return std::numeric_limits<double>::quiet_NaN();
  if (x == infinity) return x;
  const bool is_subnormal = x < 0x1p-1022;
  const auto word = std::bit_cast<int64_t>(is_subnormal ? x * 0x1p54 : x);
  // x = m * 2^n with m in [sqrt(1/2), sqrt(2)).
  const int64_t exponent = (word - std::bit_cast<int64_t>(0.70710678118654752440)) >> 52;
  const double n = static_cast<double>(is_subnormal ? exponent - 54 : exponent);
  const double f = std::bit_cast<double>(word - exponent * (int64_t{1} << 52)) - 1.0;
  // log(1 + f) = 2 artanh(s) = f - (f^2 / 2 - s (f^2 / 2 + tail)). Here tail is the series from its third
  // power on.
  const double s = f / (2.0 + f);
  const double square = s * s, half_square = 0.5 * f * f;
  const double tail = square * polynomial(square, artanh_series);
  return n * upper_log_of_2 - ((half_square - (s * (half_square + tail) + n * lower_log_of_2)) - f);
}

/// sin(x) for |x| <= pi / 4.
constexpr double sin_near_zero(double x) {
  const double square = x * x;
  return x + x * square * polynomial(square, sin_series);
}

/// cos(x) for |x| <= pi / 4.
constexpr double cos_near_zero(double x) {
  const double square = x * x;
  return 1.0 - (0.5 * square - square * square * polynomial(square, cos_series));
}

/// {sin(2 pi x), cos(2 pi x)} for |x| < 2^49, 2 ulp. An angle in turns is reduced without an error.
constexpr std::array<double, 2> sin_and_cos_of_turns(double x) {
  const double nearest = nearest_integer(4.0 * x);
  const double angle = (x - 0.25 * nearest) * 6.28318530717958647693;
  // A processor cannot predict the quarter of a random angle, so this code does not branch on it.
  const std::array<double, 2> near_zero{sin_near_zero(angle), cos_near_zero(angle)};
  const auto sin_after = [&](int64_t quarters) {
    return near_zero[static_cast<size_t>(quarters & 1)] * static_cast<double>(1 - (quarters & 2));
  };
  const auto quarters = static_cast<int64_t>(nearest);
  return {sin_after(quarters), sin_after(quarters + 1)};
}

/// sin(2 pi x), 2 ulp.
constexpr double sin_of_turns(double x) { return sin_and_cos_of_turns(x)[0]; }
/// cos(2 pi x), 2 ulp.
constexpr double cos_of_turns(double x) { return sin_and_cos_of_turns(x)[1]; }

/// Hyperbolic tangent, 3 ulp.
constexpr double tanh(double x) {
  const double magnitude = x < 0.0 ? -x : x;
  const double small = exp_minus_1_near_zero(magnitude < 0.3 ? 2.0 * magnitude : 0.0);
  const double result = magnitude < 0.3 ? small / (small + 2.0) : 1.0 - 2.0 / (exp(2.0 * magnitude) + 1.0);
  return x < 0.0 ? -result : x == 0.0 ? x : result;
}

/// Error function, 10 ulp. For |x| >= 2 it uses the continued fraction of 1 - erf (Abramowitz & Stegun
/// 7.1.14). For |x| < 2 it uses a series of positive terms (7.1.6).
constexpr double erf(double x) {
  if (x != x || x == 0.0) return x;
  const double magnitude = x < 0.0 ? -x : x;
  double result = 1.0;
  if (magnitude < 2.0) {
    double term = 1.12837916709551257390 * magnitude * exp(-magnitude * magnitude);  // 2 / sqrt(pi)
    result = term;
    for (int i = 1; i < 40; ++i) {
      term *= 2.0 * magnitude * magnitude / (2 * i + 1);
      result += term;
    }
  } else if (magnitude < 6.0) {
    double fraction = magnitude;
    for (int i = 60; i >= 1; --i) fraction = magnitude + 0.5 * i / fraction;
    result = 1.0 - 0.56418958354775628695 * exp(-magnitude * magnitude) / fraction;  // 1 / sqrt(pi)
  }
  return x < 0.0 ? -result : result;
}

}  // namespace lockstep::math
