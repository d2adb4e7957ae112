// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/coefficients.h"
#include "lockstep/kernels/cuda/device/ptx.cuh"
#include "lockstep/kernels/gelu.h"
#include "lockstep/kernels/math.h"

namespace lockstep::cuda {

// Elementary functions of kernels in two forms. The exact form uses IEEE operations alone, so a CPU computes
// the same bits (kernels/math.h). The other form uses the GPU's approximate instructions and CUDA's library.

/// Which form a build's kernels use: the exact one if the CMake option LOCKSTEP_CUDA_EXACT is on.
#if defined(LOCKSTEP_CUDA_EXACT)
inline constexpr bool is_exact = true;
#else
inline constexpr bool is_exact = false;
#endif

inline constexpr float log2_e = 1.44269504088896340736f;

/// Returns 2^x for x <= 127 within 2 ulp. Subnormal results are 0.
template <bool exact = is_exact>
LOCKSTEP_DEVICE float fast_exp2(float x) {
  if constexpr (exact) return math::exp2(x);
  return exp2_approx(x);
}

/// Returns e^x. Results below the smallest normal number are 0. The relative error is about 2^-22 (1 + |x|),
/// and 2^-23 in the exact form.
template <bool exact = is_exact>
LOCKSTEP_DEVICE float fast_exp(float x) {
  if constexpr (exact) return math::exp(x);
  return exp2_approx(x * log2_e);
}

/// Returns 1 / x within 1 ulp. A subnormal x or result may count as 0.
template <bool exact = is_exact>
LOCKSTEP_DEVICE float fast_reciprocal(float x) {
  if constexpr (exact) return 1.0f / x;
  return rcp_approx(x);
}

/// Returns erf(x) within 2 ulp.
template <bool exact = is_exact>
LOCKSTEP_DEVICE float fast_erf(float x) {
  if constexpr (exact) return math::erf(x);
  return erff(x);
}

/// Returns tanh(x). Both forms have the same polynomial near 0.
template <bool exact = is_exact>
LOCKSTEP_DEVICE float fast_tanh(float x) {
  if constexpr (exact) return math::tanh(x);
  const float magnitude = fabsf(x);
  const float near_zero = math::tanh_near_zero(magnitude);
  const float away = 1.0f - 2.0f * rcp_approx(fast_exp<false>(2.0f * magnitude) + 1.0f);
  return copysignf(magnitude < 0.625f ? near_zero : away, x);
}

/// The logistic function of x, and 1 minus it. With e = e^-|x| neither loses digits.
struct Logistic {
  float value, complement;

  LOCKSTEP_DEVICE explicit Logistic(float x) {
    const float e = fast_exp(-fabsf(x));
    const float larger = fast_reciprocal(1.0f + e);
    const float smaller = e * larger;
    value = x < 0.0f ? smaller : larger;
    complement = x < 0.0f ? larger : smaller;
  }
};

/// Returns gelu(x): the tanh form, as x / (1 + e^-2u), or the erf form.
template <Gelu form>
LOCKSTEP_DEVICE float gelu(float x) {
  if constexpr (form == Gelu::erf)
    return 0.5f * x * (1.0f + fast_erf(x * static_cast<float>(coefficients::root_of_half)));
  const float inner =
      x * fmaf(x * x, static_cast<float>(coefficients::gelu_3), static_cast<float>(coefficients::gelu_1));
  return x * fast_reciprocal(1.0f + fast_exp(-2.0f * inner));
}

/// Returns the derivative of gelu at x.
template <Gelu form>
LOCKSTEP_DEVICE float gelu_slope(float x) {
  if constexpr (form == Gelu::erf) {
    const float cumulative = 0.5f * (1.0f + fast_erf(x * static_cast<float>(coefficients::root_of_half)));
    return fmaf(x, static_cast<float>(coefficients::normal_density) * fast_exp(-0.5f * x * x), cumulative);
  }
  const float square = x * x;
  const float inner =
      x * fmaf(square, static_cast<float>(coefficients::gelu_3), static_cast<float>(coefficients::gelu_1));
  const float inner_slope =
      fmaf(square, static_cast<float>(3 * coefficients::gelu_3), static_cast<float>(coefficients::gelu_1));
  // With e = e^-2|u| neither the sigmoid s of 2u nor s (1 - s) loses digits where s is close to 1.
  const float e = fast_exp(-2.0f * fabsf(inner));
  const float larger = fast_reciprocal(1.0f + e);
  const float smaller = e * larger;
  return fmaf(2.0f * x * inner_slope, larger * smaller, inner < 0.0f ? smaller : larger);
}

}  // namespace lockstep::cuda
