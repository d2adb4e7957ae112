// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include "core/dtype.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace lockstep {

/// While it lives this thread's sums of products of bf16 count subnormal numbers as zero, read or written, as
/// AVX512-BF16 does. Those of other types are left alone, and so are processors that are not x86-64.
template <class S>
class FlushSubnormals {
 public:
#if defined(__SSE2__)
  FlushSubnormals() {
    if constexpr (std::same_as<S, bfloat16>) _mm_setcsr(before_ | flush_to_zero | denormals_are_zero);
  }
  ~FlushSubnormals() {
    if constexpr (std::same_as<S, bfloat16>) _mm_setcsr(before_);
  }
#else
  FlushSubnormals() {}
  ~FlushSubnormals() {}
#endif
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
#if defined(__SSE2__)
  static constexpr unsigned flush_to_zero = 0x8000, denormals_are_zero = 0x0040;
  unsigned before_ = std::same_as<S, bfloat16> ? _mm_getcsr() : 0;
#endif
};

}  // namespace lockstep
