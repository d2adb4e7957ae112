// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <concepts>

#include "lockstep/core/dtype.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace lockstep {

/// Returns a * b + c as AVX512-BF16 computes it. Subnormal operands count as zero. A result that is subnormal
/// after rounding also counts as zero.
inline float flushed_multiply_add(float a, float b, float c) {
  constexpr float least = 0x1p-126f;
  const auto flushed = [](float x) { return std::fabs(x) < least ? std::copysign(0.0f, x) : x; };
  a = flushed(a);
  b = flushed(b);
  c = flushed(c);
  const float result = std::fma(a, b, c);
  if (!(std::fabs(result) <= least)) return result;
  // A result that is rounded up to the least normal number stays if 24 digits of any exponent round to it. In
  // the cases that this comparison decides, products of bf16 and their sums are exact in double.
  const double exact = static_cast<double>(a) * static_cast<double>(b) + static_cast<double>(c);
  return std::fabs(exact) < 0x1p-126 - 0x1p-151 ? std::copysign(0.0f, result) : result;
}

#if !defined(__SSE2__)
/// Whether this thread's sums of products count subnormal numbers as zero.
inline thread_local bool is_flushing_subnormals = false;
#endif

/// A scope in which this thread's sums of products of bf16 count subnormal numbers as zero, read or written,
/// as AVX512-BF16 does. On x86-64 it sets a mode of the processor. On other processors it sets a flag that
/// gemm_vector.h reads. Sums of other types do not change.
template <class S>
class FlushSubnormals {
 public:
#if defined(__SSE2__)
  FlushSubnormals() {
    if constexpr (flushes) _mm_setcsr(before_ | flush_to_zero | denormals_are_zero);
  }
  ~FlushSubnormals() {
    if constexpr (flushes) _mm_setcsr(before_);
  }
#else
  FlushSubnormals() {
    if constexpr (flushes) is_flushing_subnormals = true;
  }
  ~FlushSubnormals() {
    if constexpr (flushes) is_flushing_subnormals = before_;
  }
#endif
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  static constexpr bool flushes = std::same_as<S, bfloat16>;
#if defined(__SSE2__)
  static constexpr unsigned flush_to_zero = 0x8000, denormals_are_zero = 0x0040;
  unsigned before_ = flushes ? _mm_getcsr() : 0;
#else
  bool before_ = is_flushing_subnormals;
#endif
};

}  // namespace lockstep
