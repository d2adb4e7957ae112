// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/cuda/attention_dropout.cuh"
#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/cuda/device/math.cuh"

// Attention in fp32 without tensor cores. A block owns 32 rows of one head: queries, or keys for the
// gradients of keys and values. It walks over tiles of 32 rows of the other kind, on their side of the
// diagonal. A block of keys does so for each query head of its group. All tiles are in shared memory. Thread
// (y, x) of 8 by 16 owns rows 4 y to 4 y + 3. It owns columns x and x + 16 of a tile of scores, and every
// sixteenth column of an output. So a warp owns 8 by 32 scores, with one call of Philox for each lane.
// Operations: as on tensor cores. For scores, a thread reads 6 times 16 bytes of shared memory for 32
// multiply-adds. For outputs, it reads 4 + size / 16 times 4 bytes for size / 4 multiply-adds. Bound: shared
// memory and fp32 arithmetic.

namespace lockstep::cuda::attention {
namespace {

constexpr int tile_rows = 32;  ///< also columns of a tile of scores
constexpr int threads_x = 16, threads_y = 8, threads = threads_x * threads_y;
constexpr int own_rows = tile_rows / threads_y, own_columns = tile_rows / threads_x;

LOCKSTEP_DEVICE int thread_x() { return static_cast<int>(threadIdx.x) % threads_x; }
LOCKSTEP_DEVICE int thread_y() { return static_cast<int>(threadIdx.x) / threads_x; }

/// A tile of 32 rows of `size` columns in shared memory. Rows begin four banks apart so that eight rows are
/// read at once.
template <int size>
struct Tile {
  static constexpr int stride = size + 4;
  static constexpr int elements = tile_rows * stride;
  float* data;

  LOCKSTEP_DEVICE float* row(int index) const { return data + index * stride; }
};

using Weights = Tile<tile_rows>;

/// Copies 32 rows from row `first` on. Elements beyond the last row or column become zeros.
template <int size>
LOCKSTEP_DEVICE void copy(const Tile<size>& to, const Rows<const float>& from, int first) {
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < tile_rows * size; i += threads) {
    const int row = i / size, column = i % size;
    const bool valid = first + row < from.count && column < from.size;
    to.row(row)[column] = valid ? from.data[int64_t{first + row} * from.stride + column] : 0.0f;
  }
}

/// Computes the thread's elements of left . right^T.
template <int size>
LOCKSTEP_DEVICE void multiply_by_rows(float (&products)[own_rows][own_columns], const Tile<size>& left,
                                      const Tile<size>& right) {
#pragma unroll
  for (int i = 0; i < own_rows * own_columns; ++i) products[i / own_columns][i % own_columns] = 0.0f;
#pragma unroll 2
  for (int k = 0; k < size; k += 4) {
    float4 b[own_columns];
#pragma unroll
    for (int j = 0; j < own_columns; ++j)
      b[j] = *reinterpret_cast<const float4*>(right.row(thread_x() + threads_x * j) + k);
#pragma unroll
    for (int i = 0; i < own_rows; ++i) {
      const float4 a = *reinterpret_cast<const float4*>(left.row(own_rows * thread_y() + i) + k);
#pragma unroll
      for (int j = 0; j < own_columns; ++j) {
        float& product = products[i][j];
        product = fmaf(a.x, b[j].x, product);
        product = fmaf(a.y, b[j].y, product);
        product = fmaf(a.z, b[j].z, product);
        product = fmaf(a.w, b[j].w, product);
      }
    }
  }
}

/// Adds the thread's elements of weights . right to sums.
template <int size>
LOCKSTEP_DEVICE void multiply_by_columns(float (&sums)[own_rows][size / threads_x], const Weights& weights,
                                         const Tile<size>& right) {
#pragma unroll 2
  for (int k = 0; k < tile_rows; k += 4) {
    float4 a[own_rows];
#pragma unroll
    for (int i = 0; i < own_rows; ++i)
      a[i] = *reinterpret_cast<const float4*>(weights.row(own_rows * thread_y() + i) + k);
#pragma unroll
    for (int j = 0; j < size / threads_x; ++j) {
      const int column = thread_x() + threads_x * j;
      const float b0 = right.row(k)[column], b1 = right.row(k + 1)[column];
      const float b2 = right.row(k + 2)[column], b3 = right.row(k + 3)[column];
#pragma unroll
      for (int i = 0; i < own_rows; ++i) {
        sums[i][j] = fmaf(a[i].x, b0, sums[i][j]);
        sums[i][j] = fmaf(a[i].y, b1, sums[i][j]);
        sums[i][j] = fmaf(a[i].z, b2, sums[i][j]);
        sums[i][j] = fmaf(a[i].w, b3, sums[i][j]);
      }
    }
  }
}

/// Stores the thread's elements in rows that its warp owns. The warp reads them there as a left factor.
LOCKSTEP_DEVICE void put(const Weights& to, const float (&own)[own_rows][own_columns]) {
#pragma unroll
  for (int i = 0; i < own_rows; ++i)
#pragma unroll
    for (int j = 0; j < own_columns; ++j)
      to.row(own_rows * thread_y() + i)[thread_x() + threads_x * j] = own[i][j];
}

template <int size>
LOCKSTEP_DEVICE void store(const Rows<float>& to, int first, const float (&sums)[own_rows][size / threads_x],
                           const float (&factors)[own_rows]) {
#pragma unroll
  for (int i = 0; i < own_rows; ++i) {
    const int row = first + own_rows * thread_y() + i;
#pragma unroll
    for (int j = 0; j < size / threads_x; ++j) {
      const int column = thread_x() + threads_x * j;
      if (row < to.count && column < to.size)
        to.data[int64_t{row} * to.stride + column] = sums[i][j] * factors[i];
    }
  }
}

/// Draws whether dropout keeps each of the thread's elements. Rows are queries, or keys if `rows_are_keys`.
template <bool rows_are_keys, bool dropped>
LOCKSTEP_DEVICE void draw(bool (&kept)[own_rows][own_columns], const Mask<dropped>& mask, int first_query,
                          int first_key) {
  const int lane = lane_index(), warp_row = 8 * warp_index();
  if constexpr (!dropped) {
#pragma unroll
    for (int i = 0; i < own_rows * own_columns; ++i) kept[i / own_columns][i % own_columns] = true;
  } else if constexpr (rows_are_keys) {
    const uint32_t bits = mask.draw(first_query + lane, (first_key + warp_row) / 8);
#pragma unroll
    for (int j = 0; j < own_columns; ++j) {
      const uint32_t column_bits = __shfl_sync(all_lanes, bits, thread_x() + threads_x * j);
#pragma unroll
      for (int i = 0; i < own_rows; ++i)
        kept[i][j] = (column_bits >> (own_rows * (thread_y() % 2) + i) & 1u) != 0;
    }
  } else {
    uint32_t bits = mask.draw(first_query + warp_row + lane / 4, first_key / 8 + lane % 4)
                    << (8 * (lane % 4));
    bits |= __shfl_xor_sync(all_lanes, bits, 1);
    bits |= __shfl_xor_sync(all_lanes, bits, 2);
#pragma unroll
    for (int i = 0; i < own_rows; ++i) {
      const uint32_t row_bits = __shfl_sync(all_lanes, bits, 4 * (own_rows * (thread_y() % 2) + i));
#pragma unroll
      for (int j = 0; j < own_columns; ++j) kept[i][j] = (row_bits >> (thread_x() + threads_x * j) & 1u) != 0;
    }
  }
}

template <int size, bool dropped>
__global__ void __launch_bounds__(threads, 2) forward_kernel(const Forward<float> call) {
  const Problem& problem = call.problem;
  float* const shared = dynamic_shared<float>();
  const Tile<size> queries{shared}, keys{shared + Tile<size>::elements},
      values{shared + 2 * Tile<size>::elements};
  const Weights weights{shared + 3 * Tile<size>::elements};
  const int first_query =
      (static_cast<int>(gridDim.x - 1 - blockIdx.x) + problem.first_query / tile_rows) * tile_rows;
  const int head = head_of_block(), key_head = head / problem.group;
  const Mask<dropped> mask(problem.dropout, head);
  const float scale = problem.scale * log2_e;
  float output[own_rows][size / threads_x] = {}, largest[own_rows], sums[own_rows] = {};
#pragma unroll
  for (int i = 0; i < own_rows; ++i) largest[i] = -INFINITY;
  copy(queries, query_rows_of(call.qkv, problem, head), first_query);
  for (int first_key = first_query; first_key >= 0; first_key -= tile_rows) {
    __syncthreads();
    copy(keys, key_rows_of(call.qkv, problem, key_head), first_key);
    copy(values, value_rows_of(call.qkv, problem, key_head), first_key);
    __syncthreads();
    float scores[own_rows][own_columns];
    bool kept[own_rows][own_columns];
    multiply_by_rows(scores, queries, keys);
    draw<false>(kept, mask, first_query, first_key);
#pragma unroll
    for (int i = 0; i < own_rows; ++i) {
      const int last = first_query + own_rows * thread_y() + i - first_key;
      const float before = largest[i];
#pragma unroll
      for (int j = 0; j < own_columns; ++j) {
        scores[i][j] = thread_x() + threads_x * j > last ? -INFINITY : scores[i][j];
        largest[i] = fmaxf(largest[i], scores[i][j]);
      }
      largest[i] = warp_max<threads_x>(largest[i]);
      const float correction = fast_exp2((before - largest[i]) * scale);
      sums[i] *= correction;
#pragma unroll
      for (int j = 0; j < size / threads_x; ++j) output[i][j] *= correction;
#pragma unroll
      for (int j = 0; j < own_columns; ++j) {
        const float weight = fast_exp2((scores[i][j] - largest[i]) * scale);
        sums[i] += weight;
        scores[i][j] = kept[i][j] ? weight : 0.0f;
      }
    }
    put(weights, scores);
    __syncwarp();
    multiply_by_columns(output, weights, values);
  }
  float factors[own_rows];
#pragma unroll
  for (int i = 0; i < own_rows; ++i) {
    const int row = first_query + own_rows * thread_y() + i;
    const float sum = warp_sum<threads_x>(sums[i]);
    factors[i] = problem.dropout.kept_scale / sum;
    if (thread_x() == 0 && row < problem.time)
      call.log_sum_exp[statistics_of_head(problem, head) + row] =
          fmaf(largest[i], problem.scale, math::log(sum));
  }
  store<size>(output_rows_of(call.y, problem, head), first_query, output, factors);
}

/// The log_sum_exp and the dots of 32 queries, in shared memory.
struct Statistics {
  float* log_sums;
  float* dots;

  LOCKSTEP_DEVICE void fetch(const Backward<float>& call, int head, int first) const {
    const int index = static_cast<int>(threadIdx.x), query = first + index;
    if (index >= tile_rows) return;
    const int64_t at = statistics_of_head(call.problem, head) + query;
    // A query beyond the end gets INFINITY so that its weights are zero.
    log_sums[index] = query < call.problem.time ? call.log_sum_exp[at] : INFINITY;
    dots[index] = query < call.problem.time ? call.dots[at] : 0.0f;
  }
};

/// Turns scores into weights after dropout, and gradients of weights into gradients of scores, divided by
/// scale.
template <bool rows_are_keys, bool dropped>
LOCKSTEP_DEVICE void differentiate(float (&scores)[own_rows][own_columns],
                                   float (&dweights)[own_rows][own_columns], const Statistics& statistics,
                                   const Mask<dropped>& mask, int first_query, int first_key,
                                   const Problem& problem) {
  bool kept[own_rows][own_columns];
  draw<rows_are_keys>(kept, mask, first_query, first_key);
#pragma unroll
  for (int i = 0; i < own_rows; ++i)
#pragma unroll
    for (int j = 0; j < own_columns; ++j) {
      const int row = own_rows * thread_y() + i, column = thread_x() + threads_x * j;
      const int query = rows_are_keys ? column : row, key = rows_are_keys ? row : column;
      const bool visible = first_key + key <= first_query + query;
      const float exponent = fmaf(scores[i][j], problem.scale, -statistics.log_sums[query]);
      const float weight = visible ? fast_exp(exponent) : 0.0f;
      const float dweight = kept[i][j] ? dweights[i][j] * problem.dropout.kept_scale : 0.0f;
      scores[i][j] = kept[i][j] ? weight : 0.0f;
      dweights[i][j] = weight * (dweight - statistics.dots[query]);
    }
}

/// The bytes of four tiles, two tiles of weights, and statistics.
template <int size>
constexpr size_t backward_bytes = sizeof(float) *
                                  (4 * Tile<size>::elements + 2 * Weights::elements + 2 * tile_rows);

template <int size, bool dropped>
__global__ void __launch_bounds__(threads, 2) key_gradient_kernel(const Backward<float> call) {
  const Problem& problem = call.problem;
  float* const shared = dynamic_shared<float>();
  const Tile<size> keys{shared}, values{shared + Tile<size>::elements};
  const Tile<size> queries{shared + 2 * Tile<size>::elements}, dy{shared + 3 * Tile<size>::elements};
  const Weights weights{shared + 4 * Tile<size>::elements}, dscores{weights.data + Weights::elements};
  const Statistics statistics{dscores.data + Weights::elements, dscores.data + Weights::elements + tile_rows};
  const int first_key = static_cast<int>(blockIdx.x) * tile_rows, key_head = head_of_block();
  float dk[own_rows][size / threads_x] = {}, dv[own_rows][size / threads_x] = {};
  copy(keys, key_rows_of(call.qkv, problem, key_head), first_key);
  copy(values, value_rows_of(call.qkv, problem, key_head), first_key);
  for (int head = key_head * problem.group; head < (key_head + 1) * problem.group; ++head) {
    const Mask<dropped> mask(problem.dropout, head);
    for (int first_query = first_key; first_query < problem.time; first_query += tile_rows) {
      __syncthreads();
      copy(queries, query_rows_of(call.qkv, problem, head), first_query);
      copy(dy, output_rows_of(call.dy, problem, head), first_query);
      statistics.fetch(call, head, first_query);
      __syncthreads();
      float scores[own_rows][own_columns], dweights[own_rows][own_columns];
      multiply_by_rows(scores, keys, queries);
      multiply_by_rows(dweights, values, dy);
      differentiate<true>(scores, dweights, statistics, mask, first_query, first_key, problem);
      put(weights, scores);
      put(dscores, dweights);
      __syncwarp();
      multiply_by_columns(dv, weights, dy);
      multiply_by_columns(dk, dscores, queries);
    }
  }
  float key_factors[own_rows], value_factors[own_rows];
#pragma unroll
  for (int i = 0; i < own_rows; ++i) {
    key_factors[i] = problem.scale;
    value_factors[i] = problem.dropout.kept_scale;
  }
  store<size>(key_rows_of(call.dqkv, problem, key_head), first_key, dk, key_factors);
  store<size>(value_rows_of(call.dqkv, problem, key_head), first_key, dv, value_factors);
}

template <int size, bool dropped>
__global__ void __launch_bounds__(threads, 2) query_gradient_kernel(const Backward<float> call) {
  const Problem& problem = call.problem;
  float* const shared = dynamic_shared<float>();
  const Tile<size> queries{shared}, dy{shared + Tile<size>::elements};
  const Tile<size> keys{shared + 2 * Tile<size>::elements}, values{shared + 3 * Tile<size>::elements};
  const Weights dscores{shared + 4 * Tile<size>::elements};
  const Statistics statistics{dscores.data + Weights::elements, dscores.data + Weights::elements + tile_rows};
  const int first_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * tile_rows;
  const int head = head_of_block(), key_head = head / problem.group;
  const Mask<dropped> mask(problem.dropout, head);
  float dq[own_rows][size / threads_x] = {}, factors[own_rows];
#pragma unroll
  for (int i = 0; i < own_rows; ++i) factors[i] = problem.scale;
  copy(queries, query_rows_of(call.qkv, problem, head), first_query);
  copy(dy, output_rows_of(call.dy, problem, head), first_query);
  statistics.fetch(call, head, first_query);
  for (int first_key = first_query; first_key >= 0; first_key -= tile_rows) {
    __syncthreads();
    copy(keys, key_rows_of(call.qkv, problem, key_head), first_key);
    copy(values, value_rows_of(call.qkv, problem, key_head), first_key);
    __syncthreads();
    float scores[own_rows][own_columns], dweights[own_rows][own_columns];
    multiply_by_rows(scores, queries, keys);
    multiply_by_rows(dweights, dy, values);
    differentiate<false>(scores, dweights, statistics, mask, first_query, first_key, problem);
    put(dscores, dweights);
    __syncwarp();
    multiply_by_columns(dq, dscores, keys);
  }
  store<size>(query_rows_of(call.dqkv, problem, head), first_query, dq, factors);
}

static_assert(backward_bytes<128> <= most_shared_bytes);

template <class Call>
void launch_over_rows(const CudaStream& stream, size_t shared_bytes, int heads, void (*kernel)(Call),
                      const Call& call) {
  launch_grid(
      stream,
      {.blocks = blocks_of(call.problem, tile_rows, heads), .threads = threads, .shared_bytes = shared_bytes},
      kernel, call);
}

}  // namespace

void run_in_fp32(const CudaStream& stream, const Forward<float>& call) {
  with_variant(call.problem, [&]<int size, bool dropped>() {
    constexpr size_t bytes = sizeof(float) * (3 * Tile<size>::elements + Weights::elements);
    launch_over_rows(stream, bytes, call.problem.heads, forward_kernel<size, dropped>, call);
  });
}

void run_in_fp32(const CudaStream& stream, const Backward<float>& call) {
  with_variant(call.problem, [&]<int size, bool dropped>() {
    launch_over_rows(stream, backward_bytes<size>, call.problem.key_heads, key_gradient_kernel<size, dropped>,
                     call);
    launch_over_rows(stream, backward_bytes<size>, call.problem.heads, query_gradient_kernel<size, dropped>,
                     call);
  });
}

}  // namespace lockstep::cuda::attention
