// SPDX-License-Identifier: Apache-2.0
#pragma once

// The emulator's replacement of src/kernels/cuda/device/ptx.cuh. It models each instruction.

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "lockstep/kernels/cuda/device/intrinsics.cuh"

namespace lockstep::cuda {

LOCKSTEP_DEVICE void cp_async_16(void* shared, const void* global, bool valid = true) {
  emulator::copy_asynchronously(shared, global, valid);
}

LOCKSTEP_DEVICE void cp_async_commit() { emulator::close_copy_group(); }

template <int pending>
LOCKSTEP_DEVICE void cp_async_wait() {
  emulator::wait_for_copy_groups(pending);
}

LOCKSTEP_DEVICE void load_matrix_x4(uint32_t (&matrices)[4], const void* row,
                                    const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emulator::load_matrices(matrices, row, false, {file, line});
}
LOCKSTEP_DEVICE void load_matrix_x4_transposed(uint32_t (&matrices)[4], const void* row,
                                               const char* file = __builtin_FILE(),
                                               int line = __builtin_LINE()) {
  emulator::load_matrices(matrices, row, true, {file, line});
}
template <class T>
LOCKSTEP_DEVICE void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                 const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  static_assert(std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, __half>);
  const uint32_t b[2] = {b0, b1};
  emulator::multiply_matrices(std::is_same_v<T, __half> ? emulator::Half::f16 : emulator::Half::bf16, c, a, b,
                              {file, line});
}

/// Applies .ftz: a subnormal number becomes zero with the same sign.
LOCKSTEP_DEVICE float flush_to_zero(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

LOCKSTEP_DEVICE float exp2_approx(float x) { return flush_to_zero(std::exp2(flush_to_zero(x))); }

LOCKSTEP_DEVICE float rcp_approx(float x) { return flush_to_zero(1.0f / flush_to_zero(x)); }

}  // namespace lockstep::cuda
