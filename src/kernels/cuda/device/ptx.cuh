// SPDX-License-Identifier: Apache-2.0
#pragma once

// One wrapper for each PTX instruction that CUDA C++ does not offer. All of them exist from sm_80 on. The
// emulator's file of this name has a model of each.

#include <cstdint>
#include <type_traits>

#include "lockstep/kernels/cuda/device/intrinsics.cuh"

namespace lockstep::cuda {

LOCKSTEP_DEVICE uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Copies 16 bytes from global to shared memory in the background, or writes zeros if not valid. Both
/// addresses are multiples of 16. The global address is not read if not valid.
LOCKSTEP_DEVICE void cp_async_16(void* shared, const void* global, bool valid = true) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(bytes)
               : "memory");
}

/// Closes this thread's group of copies.
LOCKSTEP_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most `pending` of this thread's newest groups are in flight. Other threads see the bytes
/// after a barrier.
template <int pending>
LOCKSTEP_DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/// Loads four 8x8 matrices of 16-bit elements. Lane l gives the address of row l % 8 of matrix l / 8. It
/// receives columns 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of each matrix.
LOCKSTEP_DEVICE void load_matrix_x4(uint32_t (&matrices)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(shared_address(row))
               : "memory");
}

/// Loads four 8x8 matrices like load_matrix_x4, but transposes each.
LOCKSTEP_DEVICE void load_matrix_x4_transposed(uint32_t (&matrices)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(shared_address(row))
               : "memory");
}

/// Computes c += a . b on tensor cores. a [16, 16] and b [16, 8] are of T (__nv_bfloat16 or __half), and c
/// [16, 8] is in fp32. With g = lane / 4 and p = 2 (lane % 4), a lane holds c[g][p, p + 1] and
/// c[g + 8][p, p + 1]; a[g][p ..], a[g + 8][p ..], a[g][p + 8 ..], a[g + 8][p + 8 ..]; b[p ..][g] and
/// b[p + 8 ..][g].
template <class T>
LOCKSTEP_DEVICE void mma_16x8x16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  static_assert(std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, __half>);
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Returns 2^x within 2 ulp. Subnormal results are 0.
LOCKSTEP_DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Returns 1 / x within 1 ulp. Subnormal results are 0.
LOCKSTEP_DEVICE float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace lockstep::cuda
