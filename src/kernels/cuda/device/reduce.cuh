// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/kernels/cuda/device/intrinsics.cuh"

namespace lockstep::cuda {

inline constexpr int warp_size = 32;
inline constexpr unsigned all_lanes = 0xffffffffu;

LOCKSTEP_DEVICE int lane_index() { return static_cast<int>(threadIdx.x) % warp_size; }
LOCKSTEP_DEVICE int warp_index() { return static_cast<int>(threadIdx.x) / warp_size; }

/// Returns the sum over `width` neighbouring lanes (a power of two) on each of them. All lanes get the same
/// bits because the sum is a butterfly and additions commute.
template <int width = warp_size, class T>
LOCKSTEP_DEVICE T warp_sum(T value) {
#pragma unroll
  for (int distance = width / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(all_lanes, value, distance);
  return value;
}

template <int width = warp_size>
LOCKSTEP_DEVICE float warp_max(float value) {
#pragma unroll
  for (int distance = width / 2; distance > 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(all_lanes, value, distance));
  return value;
}

/// Returns the sum over a block of `threads` (a multiple of 32, up to 1024) on every thread. Warps are added
/// first, then their sums in order of warps. `scratch` is shared memory for threads / 32 values. It may be
/// used again after a barrier.
template <int threads, class T>
LOCKSTEP_DEVICE T block_sum(T value, T* scratch) {
  value = warp_sum(value);
  if (lane_index() == 0) scratch[warp_index()] = value;
  __syncthreads();
  T sum = scratch[0];
#pragma unroll
  for (int warp = 1; warp < threads / warp_size; ++warp) sum += scratch[warp];
  return sum;
}

/// The threads of a block that calls sum_of_rows().
inline constexpr int row_sum_threads = 32 * warp_size;

/// Returns the sum of the lane's column on the first warp of a block, and 0 on the others. `values` is the
/// column's first number, null for a lane without a column. `stride` is the distance between rows. `scratch`
/// has row_sum_threads floats of shared memory. Warp g adds rows g, g + 32, ... Then the first warp adds the
/// warps' sums in order.
LOCKSTEP_DEVICE float sum_of_rows(const float* values, int64_t rows, int64_t stride, float* scratch) {
  constexpr int warps = row_sum_threads / warp_size;
  float sum = 0.0f;
  if (values) {
#pragma unroll 8
    for (int64_t row = warp_index(); row < rows; row += warps) sum += values[row * stride];
  }
  scratch[threadIdx.x] = sum;
  __syncthreads();
  if (warp_index() > 0) return 0.0f;
#pragma unroll 8
  for (int warp = 1; warp < warps; ++warp) sum += scratch[warp * warp_size + lane_index()];
  return sum;
}

}  // namespace lockstep::cuda
