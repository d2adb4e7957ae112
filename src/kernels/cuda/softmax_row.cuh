// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rows that a warp or a block holds, their largest element and the sum of the exponentials. Softmax and cross
// entropy use them.

#include <cmath>
#include <limits>

#include "lockstep/kernels/cuda/device/math.cuh"
#include "lockstep/kernels/cuda/device/pack.cuh"
#include "lockstep/kernels/cuda/device/reduce.cuh"

namespace lockstep::cuda {

/// The elements of a row that belong to a thread: groups of Pack<T>::size, packed or `threads` apart.
template <class Type, int threads_per_row, bool is_packed>
struct SoftmaxLayout {
  using T = Type;
  static constexpr int threads = threads_per_row;
  static constexpr bool packed = is_packed;
  static constexpr int width = Pack<T>::size;
  using Group = float[width];

  static LOCKSTEP_DEVICE int thread() { return static_cast<int>(threadIdx.x) % threads; }
  static LOCKSTEP_DEVICE int groups(int columns) {
    return (columns + threads * width - 1) / (threads * width);
  }
  static LOCKSTEP_DEVICE int column(int group, int i) {
    return packed ? (group * threads + thread()) * width + i : (group * width + i) * threads + thread();
  }
  /// Returns the number, group * width + i, of the thread's element in that column. Returns -1 if it is
  /// another thread's.
  static LOCKSTEP_DEVICE int own_element(int column) {
    const int piece = packed ? column / width : column;
    if (piece % threads != thread()) return -1;
    return packed ? piece / threads * width + column % width : piece / threads;
  }
};

/// Loads a thread's group of a row from memory. Elements beyond the row's end are minus infinity, which
/// changes no maximum and no sum.
template <class L>
LOCKSTEP_DEVICE void load_values(typename L::Group& x, const typename L::T* row, int group, int columns,
                                 bool in_pieces) {
  if (L::packed && in_pieces) {
    if (L::column(group, 0) < columns) {
      const auto pack = load_pack(row + L::column(group, 0));
#pragma unroll
      for (int i = 0; i < L::width; ++i) x[i] = pack[i];
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < L::width; ++i)
    x[i] = L::column(group, i) < columns ? to_float(row[L::column(group, i)]) : -INFINITY;
}

/// Stores a thread's group of a row to memory. In pieces it bypasses the caches because the row is not read
/// again here.
template <class L>
LOCKSTEP_DEVICE void store_values(typename L::T* row, const typename L::Group& values, int group, int columns,
                                  bool in_pieces) {
  if (L::packed && in_pieces) {
    if (L::column(group, 0) < columns)
      store_pack_streaming(row + L::column(group, 0),
                           make_pack<typename L::T>([&](int i) { return values[i]; }));
  } else {
#pragma unroll
    for (int i = 0; i < L::width; ++i)
      if (L::column(group, i) < columns) row[L::column(group, i)] = from_float<typename L::T>(values[i]);
  }
}

/// The largest element so far and the sum of e^(x - largest).
struct Softmax {
  float largest = -std::numeric_limits<float>::max();
  float sum = 0.0f;

  template <int width>
  LOCKSTEP_DEVICE void add(const float (&x)[width]) {
    float top = x[0];
#pragma unroll
    for (int i = 1; i < width; ++i) top = fmaxf(top, x[i]);
    if (top > largest) {
      sum *= fast_exp(largest - top);
      largest = top;
    }
    float part = 0.0f;
#pragma unroll
    for (int i = 0; i < width; ++i) part += fast_exp(x[i] - largest);
    sum += part;
  }
};

/// Joins the results of `width` neighbouring lanes.
template <int width>
LOCKSTEP_DEVICE Softmax join_lanes(Softmax mine) {
  Softmax all;
  all.largest = warp_max<width>(mine.largest);
  all.sum = warp_sum<width>(mine.sum * fast_exp(mine.largest - all.largest));
  return all;
}

/// Joins the results of the threads of a row, and is a barrier among them. `scratch` holds two floats per
/// warp.
template <int threads>
LOCKSTEP_DEVICE Softmax join_row(Softmax mine, [[maybe_unused]] float* scratch) {
  mine = join_lanes<32>(mine);
  if constexpr (threads == 32) {
    __syncwarp();
    return mine;
  } else {
    constexpr int warps = threads / 32;
    if (cuda::lane_index() == 0) {
      scratch[cuda::warp_index()] = mine.largest;
      scratch[warps + cuda::warp_index()] = mine.sum;
    }
    __syncthreads();
    const int warp = cuda::lane_index() % warps;
    return join_lanes<warps>({scratch[warp], scratch[warps + warp]});
  }
}

}  // namespace lockstep::cuda
