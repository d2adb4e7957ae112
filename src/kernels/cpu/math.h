// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/gelu.h"

namespace lockstep::math {

// Elementary functions whose float versions are straight lines of IEEE operations: the compiler vectorises
// loops over them (which a call would prevent), and an element gets the same bits in the vector body and in
// the remainder. Polynomials are minimax (Remez). The double versions are the library's, for gradient checks.

/// e^x, 1 ulp; 0 where the result is below the smallest normal number.
[[gnu::always_inline]] inline float exp(float x) {
  constexpr float round_to_integer = 0x1.8p23f;
  constexpr float lowest = -0x1.5d589ep6f;  // -126 log(2)
  constexpr float highest = 0x1.62e42ep6f;  // just below 128 log(2)
  const float shifted = std::fma(x, 0x1.715476p0f, round_to_integer);
  const float n = shifted - round_to_integer;
  const float r = std::fma(n, 0x1.05c610p-29f, std::fma(n, -0x1.62e430p-1f, x));
  float p = 0x1.6a18f0p-10f;
  p = std::fma(p, r, 0x1.1240b2p-7f);
  p = std::fma(p, r, 0x1.55591cp-5f);
  p = std::fma(p, r, 0x1.555488p-3f);
  p = std::fma(p, r, 0x1.fffffcp-2f);
  p = std::fma(p * r, r, r) + 1.0f;
  // n is in the low bits of `shifted`: added to the exponent of p it multiplies by 2^n.
  const float scaled =
      std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23));
  const float not_small = x < lowest ? 0.0f : scaled;
  const float in_range = x > highest ? INFINITY : not_small;
  return x != x ? x : in_range;
}
inline double exp(double x) { return std::exp(x); }

/// Natural logarithm, 1 ulp. For one value a row: gcc 12 does not vectorise its selects.
inline float log(float x) {
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
inline double log(double x) { return std::log(x); }

/// Hyperbolic tangent, 2 ulp.
[[gnu::always_inline]] inline float tanh(float x) {
  const float magnitude = std::fabs(x);
  const float square = x * x;
  float p = -0x1.6947a0p-8f;
  p = std::fma(p, square, 0x1.4f5484p-6f);
  p = std::fma(p, square, -0x1.b7ce24p-5f);
  p = std::fma(p, square, 0x1.1103e2p-3f);
  p = std::fma(p, square, -0x1.555524p-2f);
  const float near_zero = std::fma(p * square, magnitude, magnitude);
  const float away = 1.0f - 2.0f / (exp(2.0f * magnitude) + 1.0f);
  return std::copysign(magnitude < 0.625f ? near_zero : away, x);
}
inline double tanh(double x) { return std::tanh(x); }

/// Error function, 2 ulp.
[[gnu::always_inline]] inline float erf(float x) {
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
  // From 1 on: erf = 1 - e^q with q = log(erfc); 1 - e^q is 1 in fp32 from 4 on.
  const float t = magnitude > 4.0f ? 4.0f : magnitude;
  float q = 0x1.8bfd06p-13f;
  q = std::fma(q, t, -0x1.859a1ap-9f);
  q = std::fma(q, t, 0x1.67789ap-6f);
  q = std::fma(q, t, -0x1.a73a78p-4f);
  q = std::fma(q, t, -0x1.4698a0p-1f);
  q = std::fma(q, t, -0x1.20938cp+0f);
  q = std::fma(q, t, -0x1.3b0982p-12f);
  const float away = 1.0f - exp(q);
  return std::copysign(magnitude < 1.0f ? near_zero : away, x);
}
inline double erf(double x) { return std::erf(x); }

// GELU, for the kernel of that name and for the products that end in it.

/// gelu(x): tanh form (as x / (1 + e^-2u), the same function) or erf form.
template <Gelu form, class T>
[[gnu::always_inline]] inline T gelu(T x) {
  if constexpr (form == Gelu::erf) return T(0.5) * x * (T(1) + erf(x * T(0.70710678118654752440)));
  const T inner = x * std::fma(x * x, T(0.044715 * 0.79788456080286535588), T(0.79788456080286535588));
  return x / (T(1) + exp(T(-2) * inner));
}

/// The derivative of gelu at x.
template <Gelu form, class T>
[[gnu::always_inline]] inline T gelu_slope(T x) {
  if constexpr (form == Gelu::erf) {
    const T cumulative = T(0.5) * (T(1) + erf(x * T(0.70710678118654752440)));
    const T density = T(0.39894228040143267794) * exp(T(-0.5) * x * x);
    return std::fma(x, density, cumulative);
  }
  const T square = x * x;
  const T inner = x * std::fma(square, T(0.044715 * 0.79788456080286535588), T(0.79788456080286535588));
  const T inner_slope = std::fma(square, T(3 * 0.044715 * 0.79788456080286535588), T(0.79788456080286535588));
  // With e = e^-2|u| neither the sigmoid s of 2u nor s (1 - s) loses digits where s is close to 1.
  const T e = exp(T(-2) * std::fabs(inner));
  const T larger = T(1) / (T(1) + e);
  const T smaller = e * larger;
  return std::fma(T(2) * x * inner_slope, larger * smaller, inner < T(0) ? smaller : larger);
}

}  // namespace lockstep::math
