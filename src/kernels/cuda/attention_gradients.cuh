// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the kernels of attention's backward on tensor cores are made of: gradients of scores, statistics of
// queries, and sums of columns.

#include "lockstep/kernels/cuda/attention_dropout.cuh"
#include "lockstep/kernels/cuda/attention_tile.cuh"
#include "lockstep/kernels/cuda/device/math.cuh"
#include "lockstep/kernels/cuda/device/pack.cuh"
#include "lockstep/kernels/cuda/device/reduce.cuh"

namespace lockstep::cuda::attention {

/// Turns scores into weights after dropout, and gradients of weights into gradients of scores, divided by
/// scale and kept_scale. Rows are keys and columns are queries. `log_sums` (in base 2) and `dots` (times
/// kept) belong to the columns.
template <bool dropped, int row_tiles, int columns>
LOCKSTEP_DEVICE void differentiate_columns(float (&scores)[row_tiles][columns][4],
                                           float (&dweights)[row_tiles][columns][4], const float* log_sums,
                                           const float* dots, const Mask<dropped>& mask, int first_key,
                                           int first_query, const Problem& problem) {
  const float scale = problem.scale * log2_e;
#pragma unroll
  for (int n = 0; n < columns; n += 2) {
    uint32_t kept[row_tiles][2];
    if constexpr (dropped)
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) mask.of_two_tiles(first_key + 16 * m, first_query + 8 * n, kept[m]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int tile = n + i / 2, column = 8 * tile + lane_index() % 4 * 2 + i % 2;
      const float log_sum = log_sums[column], dot = dots[column];
#pragma unroll
      for (int r = 0; r < 2 * row_tiles; ++r) {
        const int m = r / 2, half = r % 2;
        float& score = scores[m][tile][2 * half + i % 2];
        float& dweight = dweights[m][tile][2 * half + i % 2];
        const float weight = fast_exp2(fmaf(score, scale, -log_sum));
        score = weight;
        if constexpr (dropped) {
          const bool is_kept = kept[m][i / 2] >> (16 * half + 8 * (i % 2)) & 1u;
          score = is_kept ? weight : 0.0f;
          dweight = is_kept ? dweight : 0.0f;
        }
        dweight = weight * (dweight - dot);
      }
    }
  }
}

/// Turns scores into their gradients, divided by scale and kept_scale. Rows are queries and columns are keys.
/// The weights are not kept.
template <bool dropped, int row_tiles, int columns>
LOCKSTEP_DEVICE void differentiate_rows(float (&scores)[row_tiles][columns][4],
                                        const float (&dweights)[row_tiles][columns][4],
                                        const float (&log_sums)[row_tiles][2],
                                        const float (&dots)[row_tiles][2], const Mask<dropped>& mask,
                                        int first_query, int first_key, const Problem& problem) {
  const float scale = problem.scale * log2_e;
#pragma unroll
  for (int r = 0; r < 2 * row_tiles; ++r)
#pragma unroll
    for (int n = 0; n < columns; n += 4) {
      const int m = r / 2, half = r % 2;
      uint32_t kept = 0;
      if constexpr (dropped)
        kept = mask.of_four_tiles(first_query + 8 * r + lane_index() / 4, first_key + 8 * n);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float& score = scores[m][n + i / 2][2 * half + i % 2];
        float dweight = dweights[m][n + i / 2][2 * half + i % 2];
        if constexpr (dropped) dweight = kept >> (i / 2 * 8 + i % 2) & 1u ? dweight : 0.0f;
        const float weight = fast_exp2(fmaf(score, scale, -log_sums[m][half]));
        score = weight * (dweight - dots[m][half]);
      }
    }
}

/// Returns the log_sum_exp of a query in base 2. A query beyond the end gets INFINITY so that its weights are
/// zero.
template <class T>
LOCKSTEP_DEVICE float log_sum_of(const Backward<T>& call, int head, int query) {
  if (query >= call.problem.time) return INFINITY;
  return call.log_sum_exp[statistics_of_head(call.problem, head) + query] * log2_e;
}

/// The log_sum_exp (in base 2) and the dot of one query, loaded from global memory into registers.
struct Statistics {
  float log_sum, dot;

  template <class T>
  LOCKSTEP_DEVICE void fetch(const Backward<T>& call, int head, int query) {
    const int64_t at = statistics_of_head(call.problem, head) + query;
    const bool valid = query < call.problem.time;
    log_sum = valid ? call.log_sum_exp[at] * log2_e : INFINITY;
    dot = valid ? call.dots[at] : 0.0f;
  }
};

/// Returns dy . y of a query of a head, on each of the four lanes that share the query. A lane
/// adds two of every eight pieces of 8 columns.
template <class T>
LOCKSTEP_DEVICE float dot_of_query(const Rows<const T>& y, const Rows<const T>& dy, int query) {
  float sums[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half)
    for (int column = 8 * (lane_index() % 4 + 4 * half); query < y.count && column < y.size; column += 64) {
      const Pack<T> left = load_pack(y.data + int64_t{query} * y.stride + column);
      const Pack<T> right = load_pack(dy.data + int64_t{query} * dy.stride + column);
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[half] = fmaf(left[i], right[i], sums[half]);
    }
  return warp_sum<4>(sums[0] + sums[1]);
}

/// Computes the dots of the warp's queries, times kept, and stores them for the keys' kernel.
template <int row_tiles, class T>
LOCKSTEP_DEVICE void make_dots(float (&dots)[row_tiles][2], const Backward<T>& call, int head,
                               int first_row) {
  const Rows<const T> y = output_rows_of(call.y, call.problem, head);
  const Rows<const T> dy = output_rows_of(call.dy, call.problem, head);
  float* const stored = call.dots + statistics_of_head(call.problem, head);
#pragma unroll
  for (int i = 0; i < 2 * row_tiles; ++i) {
    const int query = first_row + 8 * i + lane_index() / 4;
    dots[i / 2][i % 2] = dot_of_query(y, dy, query) * call.problem.dropout.kept;
    if (lane_index() % 4 == 0 && query < call.problem.time) stored[query] = dots[i / 2][i % 2];
  }
}

/// Returns where this block's head begins in the block's row of `columns` sums.
LOCKSTEP_DEVICE float* sums_of_block(float* sums, const Problem& problem, int columns) {
  const int64_t row = int64_t{blockIdx.z} * gridDim.x + blockIdx.x;
  return sums + row * columns + head_of_block() * problem.size;
}

/// Stores the sums of the columns of a block's rows, which are in a tile as they were stored. A thread adds
/// every groups-th row of 8 columns, and then the groups are added in order. `sums` has this head's columns.
template <int threads, class T, int size>
LOCKSTEP_DEVICE void store_column_sums(const Tile<T, size>& tile, int rows, int columns, float* scratch,
                                       float* sums) {
  constexpr int chunks = Tile<T, size>::chunks, groups = threads / chunks;
  const int thread = static_cast<int>(threadIdx.x);
  const int chunk = thread % chunks, group = thread / chunks;
  __syncthreads();
  if (group < groups) {
    float sum[8] = {};
    for (int row = group; row < rows; row += groups) {
      const Pack<T> values = load_pack(tile.at(row, chunk));
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[i] += values[i];
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) scratch[group * size + 8 * chunk + i] = sum[i];
  }
  __syncthreads();
  for (int column = thread; column < columns; column += threads) {
    float sum = scratch[column];
    for (int other = 1; other < groups; ++other) sum += scratch[other * size + column];
    sums[column] = sum;
  }
}

}  // namespace lockstep::cuda::attention
