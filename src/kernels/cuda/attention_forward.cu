// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/cuda/attention_dropout.cuh"
#include "lockstep/kernels/cuda/attention_tile.cuh"
#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/cuda/device/math.cuh"

// Forward of attention on tensor cores (Dao 2023, FlashAttention-2, algorithm 1). A block owns a tile of
// queries of one head, and each warp owns rows of it. The block walks over tiles of keys and values from the
// diagonal down to the first key. A product of tiles gives the scores. Their exponentials relative
// to a reference are the weights. The weights are the left factor of the product with the values. All of this
// stays in registers. Meanwhile the next keys and values are copied to the other of two stages. Operations: 4
// size for each visible score, of which there are batch heads time^2 / 2. Bytes: qkv and y once, if the keys
// and values of a head stay in the second-level cache. Bound: tensor cores, and for small sizes also one
// exponential per score. Two tiles of rows per warp halve the reads of shared memory for each product.

namespace lockstep::cuda::attention {
namespace {

template <int size, bool dropped>
struct ForwardTiles {
  static constexpr int warps = 4;
  static constexpr int threads = warps * warp_size;
  static constexpr int row_tiles = 2;
  static constexpr int rows = 16 * row_tiles;  ///< per warp
  static constexpr int queries = warps * rows;
  static constexpr int keys = size <= 64 ? 64 : 32;
  // What stays in registers: addresses, and queries in steps of 16 columns. Spills limit it.
  static constexpr bool held_addresses = size < 64 || !dropped;
  static constexpr int held = size > 64 ? 0 : held_addresses ? size / 16 : 1;
  static constexpr int blocks = 2;  ///< per multiprocessor, unless shared memory allows fewer
  static constexpr size_t shared_bytes = size_t{2} * size * (queries + 4 * keys);
  static_assert(shared_bytes <= most_shared_bytes);
  static_assert(keys % rows == 0, "a warp that sees a tile at all sees its first key from each row");
};

/// Returns 2^x. It is a large number if x is above 126. The exact function must not see such an x.
LOCKSTEP_DEVICE float weight_of(float x) { return fast_exp2(is_exact && x > 126.0f ? 126.0f : x); }

/// The sum of the exponentials of each row so far, in base 2 and relative to a reference of the row. The
/// reference is raised to the row's maximum if the weights of a tile become large. So most tiles need no
/// maximum and change no earlier sums, and a row's bits depend on that row alone.
template <int row_tiles>
struct Softmax {
  static constexpr float most = 4096.0f;  ///< for a lane's sum of a tile; the largest f16 is 65504
  float reference[row_tiles][2];
  float sum[row_tiles][2];       ///< this lane's part of the sum
  float tile_sum[row_tiles][2];  ///< this lane's part of the sum of the last tile

  LOCKSTEP_DEVICE Softmax() {
#pragma unroll
    for (int i = 0; i < 2 * row_tiles; ++i) {
      reference[i / 2][i % 2] = -INFINITY;
      sum[i / 2][i % 2] = 0.0f;
      tile_sum[i / 2][i % 2] = INFINITY;
    }
  }

  /// Turns scores into weights and adds up the tile's. Returns false if a row of the warp needs raise().
  template <int columns>
  LOCKSTEP_DEVICE bool exponentiate(float (&scores)[row_tiles][columns][4], float scale) {
    bool fits = true;
#pragma unroll
    for (int i = 0; i < 2 * row_tiles; ++i) {
      const int m = i / 2, half = i % 2;
      const float offset = -reference[m][half] * scale;
      float total = 0.0f;
#pragma unroll
      for (int n = 0; n < columns; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          scores[m][n][e] = weight_of(fmaf(scores[m][n][e], scale, offset));
          total += scores[m][n][e];
        }
      tile_sum[m][half] = total;
      fits = fits && total <= most;
    }
    return __all_sync(all_lanes, fits);
  }

  /// Raises the references of the rows whose tile_sum is too large. Rescales their sums and outputs.
  template <int columns, int outputs>
  LOCKSTEP_DEVICE void raise(const float (&scores)[row_tiles][columns][4],
                             float (&output)[row_tiles][outputs][4], float scale) {
#pragma unroll
    for (int i = 0; i < 2 * row_tiles; ++i) {
      const int m = i / 2, half = i % 2;
      const bool fits = warp_max<4>(tile_sum[m][half]) <= most;
      float largest = scores[m][0][2 * half];
#pragma unroll
      for (int n = 0; n < columns; ++n)
        largest = fmaxf(largest, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
      largest = warp_max<4>(largest);
      const float before = reference[m][half];
      reference[m][half] = fits ? before : fmaxf(before, largest);
      const float correction = fast_exp2((before - reference[m][half]) * scale);  // 1 if it fits
      sum[m][half] *= correction;
#pragma unroll
      for (int n = 0; n < outputs; ++n) {
        output[m][n][2 * half] *= correction;
        output[m][n][2 * half + 1] *= correction;
      }
    }
  }

  /// Adds the tile's sum.
  LOCKSTEP_DEVICE void add() {
#pragma unroll
    for (int i = 0; i < 2 * row_tiles; ++i) sum[i / 2][i % 2] += tile_sum[i / 2][i % 2];
  }
};

/// Sets the weights that dropout does not keep to zero.
template <bool dropped, int row_tiles, int columns>
LOCKSTEP_DEVICE void drop(float (&weights)[row_tiles][columns][4], const Mask<dropped>& mask, int first_query,
                          int first_key) {
  static_assert(columns % 4 == 0);
#pragma unroll
  for (int r = 0; r < 2 * row_tiles; ++r)
#pragma unroll
    for (int n = 0; n < columns; n += 4) {
      const uint32_t kept = mask.of_four_tiles(first_query + 8 * r + lane_index() / 4, first_key + 8 * n);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float& weight = weights[r / 2][n + i / 2][r % 2 * 2 + i % 2];
        weight = kept >> (i / 2 * 8 + i % 2) & 1u ? weight : 0.0f;
      }
    }
}

/// Ends the softmax. Writes log_sum_exp, and returns the factors of the output's rows in `factors`.
template <int row_tiles>
LOCKSTEP_DEVICE void finish(const Softmax<row_tiles>& softmax, const Problem& problem, float* log_sum_exp,
                            int first_row, float (&factors)[row_tiles][2]) {
  const int lane = lane_index();
#pragma unroll
  for (int m = 0; m < row_tiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + 16 * m + 8 * half + lane / 4;
      const float sum = warp_sum<4>(softmax.sum[m][half]);
      factors[m][half] = problem.dropout.kept_scale / sum;
      if (lane % 4 == 0 && row < problem.time)
        log_sum_exp[row] = fmaf(softmax.reference[m][half], problem.scale, math::log(sum));
    }
}

template <class T, int size, bool dropped>
__global__ void __launch_bounds__(ForwardTiles<size, dropped>::threads, ForwardTiles<size, dropped>::blocks)
    forward_kernel(const Forward<T> call) {
  using Tiles = ForwardTiles<size, dropped>;
  const Problem& problem = call.problem;
  T* const shared = dynamic_shared<T>();
  const Tile<T, size> queries{shared};
  const auto stage = [&](int tile, int part) {
    return Tile<T, size>{shared + (Tiles::queries + ((tile & 1) * 2 + part) * Tiles::keys) * size};
  };
  const int head = head_of_block(), key_head = head / problem.group;
  const Rows<const T> rows[] = {
      hold_address<Tiles::held_addresses>(key_rows_of(call.qkv, problem, key_head)),
      hold_address<Tiles::held_addresses>(value_rows_of(call.qkv, problem, key_head))};
  const auto begin_copy_of_keys = [&](int tile) {
    for (int part = 0; part < 2; ++part)
      begin_copy<Tiles::threads, Tiles::keys>(stage(tile, part), rows[part], tile * Tiles::keys);
    cp_async_commit();
  };

  // The last queries see the most keys. They start first so that no long block is left at the end.
  const int first_query =
      (static_cast<int>(gridDim.x - 1 - blockIdx.x) + problem.first_query / Tiles::queries) * Tiles::queries;
  const int first_row = first_query + warp_index() * Tiles::rows;
  int tile = (min(first_query + Tiles::queries, problem.time) - 1) / Tiles::keys;
  begin_copy<Tiles::threads, Tiles::queries>(queries, query_rows_of(call.qkv, problem, head), first_query);
  cp_async_commit();
  begin_copy_of_keys(tile);
  cp_async_wait<1>();
  __syncthreads();

  const LeftRows<T, size, Tiles::row_tiles, Tiles::held> left(queries, warp_index() * Tiles::rows);
  const Mask<dropped> mask(problem.dropout, head);
  const float scale = problem.scale * log2_e;
  float output[Tiles::row_tiles][size / 8][4] = {};
  Softmax<Tiles::row_tiles> softmax;
  bool raises = true;
  for (; tile >= 0; --tile) {
    cp_async_wait<0>();
    __syncthreads();
    if (tile > 0) begin_copy_of_keys(tile - 1);
    const int first_key = tile * Tiles::keys;
    if (first_row < first_key) continue;
    float weights[Tiles::row_tiles][Tiles::keys / 8][4];
    // The first tile raises the references. Others compute their scores again if that turns out to be needed.
    for (;; raises = true) {
      clear(weights);
      multiply_by_rows(weights, left, stage(tile, 0));
      if (first_row < first_key + Tiles::keys - 1) hide_later_keys<false>(weights, first_row - first_key);
      if (raises) softmax.raise(weights, output, scale);
      if (softmax.exponentiate(weights, scale) || raises) break;
    }
    raises = false;
    softmax.add();
    if constexpr (dropped) drop(weights, mask, first_row, first_key);
    multiply_by_columns(output, weights, stage(tile, 1));
  }

  float factors[Tiles::row_tiles][2];
  finish(softmax, problem, call.log_sum_exp + statistics_of_head(problem, head), first_row, factors);
  store_rows(output_rows_of(call.y, problem, head), first_row, queries, warp_index() * Tiles::rows, output,
             [&](int m, int half) { return factors[m][half]; });
}

template <class T, int size, bool dropped>
void launch_forward(const CudaStream& stream, const Forward<T>& call) {
  using Tiles = ForwardTiles<size, dropped>;
  launch_grid(stream,
              {.blocks = blocks_of(call.problem, Tiles::queries, call.problem.heads),
               .threads = Tiles::threads,
               .shared_bytes = Tiles::shared_bytes},
              forward_kernel<T, size, dropped>, call);
}

}  // namespace

template <class T>
void run_on_tensor_cores(const CudaStream& stream, const Forward<T>& call) {
  with_variant(call.problem,
               [&]<int size, bool dropped>() { launch_forward<T, size, dropped>(stream, call); });
}
template void run_on_tensor_cores(const CudaStream&, const Forward<__nv_bfloat16>&);
template void run_on_tensor_cores(const CudaStream&, const Forward<__half>&);

}  // namespace lockstep::cuda::attention
