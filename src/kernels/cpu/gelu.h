// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "lockstep/kernels/coefficients.h"
#include "lockstep/kernels/cpu/map.h"
#include "lockstep/kernels/gelu.h"
#include "lockstep/kernels/math.h"

// GELU of many values, for the GELU kernels and for matmuls with a GELU as activation. The argument of an
// exponential, the exponential and the rest have a loop each. In a single loop the operations of an element
// wait for each other so long that a processor holds too few elements at once. Three loops take a quarter
// less time (docs/tried.md).

namespace lockstep::gelu {

inline constexpr int64_t piece = 128;
template <class T>
inline constexpr T root_of_half = T(coefficients::root_of_half);

/// sqrt(2 / pi) (x + 0.044715 x^3)
template <class T>
[[gnu::always_inline]] inline T inner(T x) {
  return x * std::fma(x * x, T(coefficients::gelu_3), T(coefficients::gelu_1));
}

/// y[i] = gelu(x[i]) for i in [0, count), count <= piece. The tanh form is computed as x / (1 + e^-2u), the
/// same function.
template <Gelu form, class S>
[[gnu::always_inline]] inline void forward_piece(const S* x, S* y, int64_t count) {
  using T = Compute<S>;
  const auto at = [=](int64_t i) { return static_cast<T>(x[i]); };
  T e[piece];
  if constexpr (form == Gelu::tanh) {
    for (int64_t i = 0; i < count; ++i) e[i] = T(-2) * inner(at(i));
    for (int64_t i = 0; i < count; ++i) e[i] = math::exp_of_number(e[i]);
    for (int64_t i = 0; i < count; ++i) e[i] = at(i) / (T(1) + e[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) e[i] = math::log_erfc(std::fabs(at(i) * root_of_half<T>));
    for (int64_t i = 0; i < count; ++i) e[i] = math::exp_of_nonpositive(e[i]);
    for (int64_t i = 0; i < count; ++i)
      e[i] = T(0.5) * at(i) * (T(1) + math::erf_given(at(i) * root_of_half<T>, e[i]));
  }
  for (int64_t i = 0; i < count; ++i) y[i] = static_cast<S>(e[i]);
}

/// dx[i] = dy[i] * the derivative of gelu at x[i] for i in [0, count), count <= piece.
template <Gelu form, class S>
[[gnu::always_inline]] inline void backward_piece(const S* x, const S* dy, S* dx, int64_t count) {
  using T = Compute<S>;
  const auto at = [=](int64_t i) { return static_cast<T>(x[i]); };
  T e[piece];
  if constexpr (form == Gelu::tanh) {
    for (int64_t i = 0; i < count; ++i) e[i] = T(-2) * std::fabs(inner(at(i)));
    for (int64_t i = 0; i < count; ++i) e[i] = math::exp_of_nonpositive(e[i]);
    for (int64_t i = 0; i < count; ++i) {
      const T inner_slope = std::fma(at(i) * at(i), T(3 * coefficients::gelu_3), T(coefficients::gelu_1));
      // With e = e^-2|u| neither the sigmoid s of 2u nor s (1 - s) loses digits where s is close to 1.
      const T larger = T(1) / (T(1) + e[i]);
      const T smaller = e[i] * larger;
      e[i] = std::fma(T(2) * at(i) * inner_slope, larger * smaller, at(i) < T(0) ? smaller : larger);
    }
  } else {
    T density[piece];
    for (int64_t i = 0; i < count; ++i) e[i] = math::log_erfc(std::fabs(at(i) * root_of_half<T>));
    for (int64_t i = 0; i < count; ++i) e[i] = math::exp_of_nonpositive(e[i]);
    for (int64_t i = 0; i < count; ++i) density[i] = math::exp_of_nonpositive(T(-0.5) * at(i) * at(i));
    for (int64_t i = 0; i < count; ++i) {
      const T cumulative = T(0.5) * (T(1) + math::erf_given(at(i) * root_of_half<T>, e[i]));
      e[i] = std::fma(at(i), T(coefficients::normal_density) * density[i], cumulative);
    }
  }
  for (int64_t i = 0; i < count; ++i) e[i] = static_cast<T>(dy[i]) * e[i];
  for (int64_t i = 0; i < count; ++i) dx[i] = static_cast<S>(e[i]);
}

/// y[i] = gelu(x[i]) for i in [0, count). y may be x.
template <Gelu form, class S>
void forward(const S* x, S* y, int64_t count) {
  for_each_piece<piece>(
      count, [=](int64_t first, int64_t length)
                 __attribute__((always_inline)) { forward_piece<form>(x + first, y + first, length); });
}

/// dx[i] = dy[i] * the derivative of gelu at x[i] for i in [0, count). dx may be x or dy.
template <Gelu form, class S>
void backward(const S* x, const S* dy, S* dx, int64_t count) {
  for_each_piece<piece>(
      count, [=](int64_t first, int64_t length) __attribute__((always_inline)) {
        backward_piece<form>(x + first, dy + first, dx + first, length);
      });
}

}  // namespace lockstep::gelu
