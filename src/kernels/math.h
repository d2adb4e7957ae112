// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "lockstep/kernels/coefficients.h"
#include "lockstep/kernels/elementary.h"

// nvcc compiles these functions for kernels too. Every build of the kernels uses log, exp,
// tanh_near_zero and sine_and_cosine. An exact build uses the others as well.
#if defined(__CUDACC__)
#define LOCKSTEP_ELEMENTARY __host__ __device__ __forceinline__
#else
#define LOCKSTEP_ELEMENTARY [[gnu::always_inline]] inline
#endif

namespace lockstep::math {

// Elementary functions of float as straight-line code of IEEE operations. The compiler vectorises loops over
// them, which a call would prevent. An element has the same bits in the vector body and in the remainder, and
// on a GPU. The polynomials are minimax (Remez). kernels/elementary.h has exp, log, tanh and erf of double.

/// The magic number that rounds a float to an integer when it is added and subtracted again.
inline constexpr float round_to_integer = 0x1.8p23f;

/// Returns 2^n e^r for |r| < 0.35. n is in the low bits of `shifted`, which is round_to_integer + n.
LOCKSTEP_ELEMENTARY float scaled_exponential(float r, float shifted) {
  float p = 0x1.6a18f0p-10f;
  p = std::fma(p, r, 0x1.1240b2p-7f);
  p = std::fma(p, r, 0x1.55591cp-5f);
  p = std::fma(p, r, 0x1.555488p-3f);
  p = std::fma(p, r, 0x1.fffffcp-2f);
  p = std::fma(p * r, r, r) + 1.0f;
  // Adding n to the exponent of p multiplies p by 2^n.
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23));
}

/// Returns e^x for x <= 0 within 1 ulp. Results below the smallest normal number are 0. For other x up
/// to 88.7 it returns what exp() returns. For all other x the result is unspecified.
LOCKSTEP_ELEMENTARY float exp_of_nonpositive(float x) {
  constexpr float lowest = -0x1.5d589ep6f;  // -126 log(2)
  const float shifted = std::fma(x, 0x1.715476p0f, round_to_integer);
  const float n = shifted - round_to_integer;
  const float r = std::fma(n, 0x1.05c610p-29f, std::fma(n, -0x1.62e430p-1f, x));
  const float scaled = scaled_exponential(r, shifted);
  return x < lowest ? 0.0f : scaled;
}
inline double exp_of_nonpositive(double x) { return exp(x); }

/// Returns e^x within 1 ulp. Results below the smallest normal number are 0. For NaN the result is
/// unspecified.
LOCKSTEP_ELEMENTARY float exp_of_number(float x) {
  constexpr float highest = 0x1.62e42ep6f;  // just below 128 log(2)
  const float in_range = exp_of_nonpositive(x);
  return x > highest ? INFINITY : in_range;
}
inline double exp_of_number(double x) { return exp(x); }

/// Returns e^x within 1 ulp. Results below the smallest normal number are 0.
LOCKSTEP_ELEMENTARY float exp(float x) {
  const float of_number = exp_of_number(x);
  return x != x ? x : of_number;
}

/// Returns 2^x within 2 ulp. Results below the smallest normal number are 0.
LOCKSTEP_ELEMENTARY float exp2(float x) {
  constexpr float lowest = -126.0f, log_of_2 = 0x1.62e430p-1f;
  const float shifted = x + round_to_integer;
  const float fraction = x - (shifted - round_to_integer);
  const float scaled = scaled_exponential(fraction * log_of_2, shifted);
  const float of_number = x < lowest ? 0.0f : (x >= 128.0f ? INFINITY : scaled);
  return x != x ? x : of_number;
}

/// Returns the natural logarithm within 1 ulp. It is for one value per row: gcc 12 does not vectorise its
/// selects.
LOCKSTEP_ELEMENTARY float log(float x) {
  const bool subnormal = x < 0x1p-126f;
  const uint32_t word = std::bit_cast<uint32_t>(subnormal ? x * 0x1p23f : x);
  // x = m * 2^n with m in [sqrt(1/2), sqrt(2)).
  const int32_t n = static_cast<int32_t>(word - 0x3f3504f3u) >> 23;
  const float m = std::bit_cast<float>(word - (static_cast<uint32_t>(n) << 23));
  const float exponent = static_cast<float>(subnormal ? n - 23 : n);
  const float f = m - 1.0f;
  const float square = f * f;
  float p = 0x1.1b42c0p-4f;
  p = std::fma(p, f, -0x1.e2e96cp-4f);
  p = std::fma(p, f, 0x1.e65078p-4f);
  p = std::fma(p, f, -0x1.fb4334p-4f);
  p = std::fma(p, f, 0x1.2332c4p-3f);
  p = std::fma(p, f, -0x1.5562e2p-3f);
  p = std::fma(p, f, 0x1.99a546p-3f);
  p = std::fma(p, f, -0x1.ffffeep-3f);
  p = std::fma(p, f, 0x1.555546p-2f);
  const float tail = std::fma(exponent, -0x1.05c610p-29f, std::fma(-0.5f, square, p * f * square));
  const float finite = std::fma(exponent, 0x1.62e430p-1f, f + tail);
  const float special = x == 0.0f ? -INFINITY : (x < 0.0f ? NAN : x);
  return x > 0.0f && x < INFINITY ? finite : special;
}

/// Returns tanh(magnitude) for a magnitude below 0.625, by a polynomial that keeps the digits of small
/// values.
LOCKSTEP_ELEMENTARY float tanh_near_zero(float magnitude) {
  const float square = magnitude * magnitude;
  float p = coefficients::tanh_11;
  p = std::fma(p, square, coefficients::tanh_9);
  p = std::fma(p, square, coefficients::tanh_7);
  p = std::fma(p, square, coefficients::tanh_5);
  p = std::fma(p, square, coefficients::tanh_3);
  return std::fma(p * square, magnitude, magnitude);
}

/// Returns the hyperbolic tangent within 2 ulp.
LOCKSTEP_ELEMENTARY float tanh(float x) {
  const float magnitude = std::fabs(x);
  const float near_zero = tanh_near_zero(magnitude);
  const float away = 1.0f - 2.0f / (exp(2.0f * magnitude) + 1.0f);
  return std::copysign(magnitude < 0.625f ? near_zero : away, x);
}

/// The logistic function of x, and 1 minus it.
template <class T>
struct Logistic {
  T value, complement;
};

/// Returns 1 / (1 + e^-x) and 1 - 1 / (1 + e^-x), both within 3 ulp. With e = e^-|x| neither loses digits:
/// one is 1 / (1 + e), the other e / (1 + e).
template <class T>
[[gnu::always_inline]] inline Logistic<T> logistic(T x) {
  const T e = exp_of_nonpositive(-std::fabs(x));
  const T larger = T(1) / (T(1) + e);
  const T smaller = e * larger;
  const T value = x < T(0) ? smaller : larger, complement = x < T(0) ? larger : smaller;
  return {x != x ? x : value, x != x ? x : complement};
}

/// Returns log(|x|) for a double |x| that holds a float: -infinity for 0. The measured relative error is
/// below 2^-51.
LOCKSTEP_ELEMENTARY double log_of_magnitude(double magnitude) {
  // |x| = m * 2^n with m in [sqrt(1/2), sqrt(2)). A double that holds a float is never subnormal.
  const uint64_t word = std::bit_cast<uint64_t>(magnitude);
  const int64_t n = static_cast<int64_t>(word - 0x3fe6a09e667f3bcdu) >> 52;
  const double f = std::bit_cast<double>(word - (static_cast<uint64_t>(n) << 52)) - 1.0;
  // log(1 + f) = 2 artanh(s).
  const double s = f / (2.0 + f), square = s * s;
  double p = 2.0 / 19.0;
  p = std::fma(p, square, 2.0 / 17.0);
  p = std::fma(p, square, 2.0 / 15.0);
  p = std::fma(p, square, 2.0 / 13.0);
  p = std::fma(p, square, 2.0 / 11.0);
  p = std::fma(p, square, 2.0 / 9.0);
  p = std::fma(p, square, 2.0 / 7.0);
  p = std::fma(p, square, 2.0 / 5.0);
  p = std::fma(p, square, 2.0 / 3.0);
  const double fraction = std::fma(p * square, s, 2.0 * s);
  const double finite = std::fma(static_cast<double>(n), 0x1.62e42fefa39efp-1, fraction);
  const double special = magnitude == 0.0 ? -HUGE_VAL : magnitude;
  return magnitude > 0.0 && magnitude < HUGE_VAL ? finite : special;
}

/// Returns e^x for |x| <= 200. The measured relative error is below 2^-46.
LOCKSTEP_ELEMENTARY double exp_in_range(double x) {
  const double shifted = std::fma(x, 0x1.71547652b82fep0, 0x1.8p52);
  const double n = shifted - 0x1.8p52;
  const double r = std::fma(n, -0x1.abc9e3b39803fp-56, std::fma(n, -0x1.62e42fefa39efp-1, x));
  double p = 1.0 / 39916800.0;  // Taylor series: 1 / 11!
  p = std::fma(p, r, 1.0 / 3628800.0);
  p = std::fma(p, r, 1.0 / 362880.0);
  p = std::fma(p, r, 1.0 / 40320.0);
  p = std::fma(p, r, 1.0 / 5040.0);
  p = std::fma(p, r, 1.0 / 720.0);
  p = std::fma(p, r, 1.0 / 120.0);
  p = std::fma(p, r, 1.0 / 24.0);
  p = std::fma(p, r, 1.0 / 6.0);
  p = std::fma(p, r, 0.5);
  p = std::fma(p * r, r, r) + 1.0;
  return std::bit_cast<double>(std::bit_cast<uint64_t>(p) + (std::bit_cast<uint64_t>(shifted) << 52));
}

/// Returns x^y, rounded from a double whose relative error is below 2^-37. The special cases are those of
/// IEEE 754.
LOCKSTEP_ELEMENTARY float pow(float x, float y) {
  const float magnitude = std::fabs(x);
  const double exponent = static_cast<double>(y) * log_of_magnitude(static_cast<double>(magnitude));
  const double in_range = exponent > 200.0 ? 200.0 : exponent < -200.0 ? -200.0 : exponent;
  const float power = static_cast<float>(exp_in_range(in_range));
  // Floats from 2^24 on are even numbers.
  const float half = 0.5f * y;
  const bool is_whole = y == std::trunc(y);
  const bool is_odd = is_whole && half != std::trunc(half) && std::fabs(y) < 0x1p24f;
  const float with_sign = is_odd ? std::copysign(power, x) : power;
  const float real = x < 0.0f && magnitude < INFINITY && !is_whole ? NAN : with_sign;
  const float defined = x != x || y != y ? x + y : real;
  const bool is_one = y == 0.0f || x == 1.0f || (magnitude == 1.0f && std::fabs(y) == INFINITY);
  return is_one ? 1.0f : defined;
}
/// Returns x^y. A whole power up to 64 is a product. Else the relative error is 2^-52 (1 + |y log(x)|).
inline double pow(double x, double y) {
  constexpr double largest_product = 64.0;
  if (y == 0.0 || x == 1.0 || (x == -1.0 && std::fabs(y) == HUGE_VAL)) return 1.0;
  if (x != x || y != y) return x + y;
  const bool is_whole = y == std::trunc(y);
  if (is_whole && std::fabs(y) <= largest_product) {
    const double product = power(x, static_cast<int64_t>(std::fabs(y)));
    return y < 0.0 ? 1.0 / product : product;
  }
  if (x < 0.0 && x != -HUGE_VAL && !is_whole) return std::nan("");
  const double magnitude = exp(y * log(std::fabs(x)));
  const bool is_odd = is_whole && 0.5 * y != std::trunc(0.5 * y);
  return is_odd ? std::copysign(magnitude, x) : magnitude;
}

/// The sine and the cosine of an angle.
struct SineCosine {
  double sine, cosine;
};

/// Returns the sine and cosine of an angle in radians within 1 ulp of 1, for |angle| < 2^31.
LOCKSTEP_ELEMENTARY SineCosine sine_and_cosine(double angle) {
  // angle = n * pi / 2 + r with |r| <= pi / 4. The low bits of `shifted` are n.
  const double shifted = std::fma(angle, 0x1.45f306dc9c883p-1, 0x1.8p52);
  const double n = shifted - 0x1.8p52;
  const double r = std::fma(n, -0x1.1a62633145c07p-54, std::fma(n, -0x1.921fb54442d18p0, angle));
  const double square = r * r;
  double s = 1.0 / 355687428096000.0;  // Taylor series: 1 / 17!
  s = std::fma(s, square, -1.0 / 1307674368000.0);
  s = std::fma(s, square, 1.0 / 6227020800.0);
  s = std::fma(s, square, -1.0 / 39916800.0);
  s = std::fma(s, square, 1.0 / 362880.0);
  s = std::fma(s, square, -1.0 / 5040.0);
  s = std::fma(s, square, 1.0 / 120.0);
  s = std::fma(s, square, -1.0 / 6.0);
  s = std::fma(s * square, r, r);
  double c = 1.0 / 20922789888000.0;  // 1 / 16!
  c = std::fma(c, square, -1.0 / 87178291200.0);
  c = std::fma(c, square, 1.0 / 479001600.0);
  c = std::fma(c, square, -1.0 / 3628800.0);
  c = std::fma(c, square, 1.0 / 40320.0);
  c = std::fma(c, square, -1.0 / 720.0);
  c = std::fma(c, square, 1.0 / 24.0);
  c = std::fma(c * square, square, std::fma(-0.5, square, 1.0));
  const uint64_t quarter = std::bit_cast<uint64_t>(shifted);
  const double sine = (quarter & 1) != 0 ? c : s, cosine = (quarter & 1) != 0 ? s : c;
  return {(quarter & 2) != 0 ? -sine : sine, ((quarter + 1) & 2) != 0 ? -cosine : cosine};
}

/// Returns log(erfc(x)) for x in [1, 4]. The result is at most 0 for all x >= 0.
LOCKSTEP_ELEMENTARY float log_erfc(float x) {
  const float t = x > 4.0f ? 4.0f : x;
  float q = 0x1.8bfd06p-13f;
  q = std::fma(q, t, -0x1.859a1ap-9f);
  q = std::fma(q, t, 0x1.67789ap-6f);
  q = std::fma(q, t, -0x1.a73a78p-4f);
  q = std::fma(q, t, -0x1.4698a0p-1f);
  q = std::fma(q, t, -0x1.20938cp+0f);
  return std::fma(q, t, -0x1.3b0982p-12f);
}

/// Returns the error function, given erfc = e^log_erfc(|x|). For |x| >= 1 it is 1 - erfc, which is 1 in fp32
/// for |x| >= 4.
LOCKSTEP_ELEMENTARY float erf_given(float x, float erfc) {
  const float magnitude = std::fabs(x);
  const float square = x * x;
  float p = 0x1.4ae4eap-14f;
  p = std::fma(p, square, -0x1.a485f6p-11f);
  p = std::fma(p, square, 0x1.5419f6p-8f);
  p = std::fma(p, square, -0x1.b7fbb4p-6f);
  p = std::fma(p, square, 0x1.ce2d20p-4f);
  p = std::fma(p, square, -0x1.81273ep-2f);
  p = std::fma(p, square, 0x1.06eba8p-3f);
  const float near_zero = std::fma(p, magnitude, magnitude);
  const float away = 1.0f - erfc;
  return std::copysign(magnitude < 1.0f ? near_zero : away, x);
}

/// Returns the error function within 2 ulp.
LOCKSTEP_ELEMENTARY float erf(float x) { return erf_given(x, exp(log_erfc(std::fabs(x)))); }

// erf(double) needs no erfc, so erf_given(double, ...) ignores it.
inline double log_erfc(double) { return 0.0; }
inline double erf_given(double x, double) { return erf(x); }

}  // namespace lockstep::math
