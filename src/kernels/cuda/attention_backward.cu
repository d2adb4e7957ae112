// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention_dropout.cuh"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/math.cuh"
#include "kernels/cuda/device/pack.cuh"
#include "kernels/cuda/device/reduce.cuh"

// Backward of attention on tensor cores, from the saved log_sum_exp (Dao et al. 2022, appendix B.4). Two
// kernels give each sum one owner and one order. In the first, a block owns a tile of queries and walks over
// keys and values as the forward does. It also computes dy . y of its queries for both kernels. In the second
// kernel, a block owns a tile of keys and values, and each warp owns rows of it. The block walks over the
// queries from the diagonal on. Its rows are keys. So weights and gradients of scores are left factors of the
// products with dy and with the queries, and never leave registers. Both kernels compute the scores and the
// gradients of weights. A visible score takes seven products of 2 size operations instead of five. In return,
// blocks share no sums in memory. Bytes: qkv and dy once in each kernel, y and dqkv once. Bound: tensor cores
// and reads of shared memory.

namespace lockstep::cuda::attention {
namespace {

/// Tiles for the gradients of keys and values. A warp has two tiles of rows if registers allow it.
template <int size, bool dropped>
struct KeyTiles {
  static constexpr int warps = 4;
  static constexpr int threads = warps * warp_size;
  static constexpr int row_tiles = size <= (dropped ? 32 : 64) ? 2 : 1;
  static constexpr int rows = 16 * row_tiles;  ///< per warp
  static constexpr int keys = warps * rows;
  static constexpr int queries = row_tiles == 2 || size == 128 ? 32 : 64;
  // What stays in registers: addresses, and keys and values in steps of 16 columns. Spills limit it.
  static constexpr bool held_addresses = size != 64 || row_tiles == 1;
  static constexpr int held_keys = !held_addresses || size == 96 ? 0 : size == 128 ? 4 : size / 16;
  static constexpr int held_values = size > 64 ? 0 : held_keys;
  static constexpr int blocks = 2;  ///< per multiprocessor, unless shared memory allows fewer
  static constexpr size_t tile_elements = size_t{size} * (2 * keys + 4 * queries);
  static constexpr size_t shared_bytes = 2 * tile_elements + 4 * queries * sizeof(float);
  static_assert(shared_bytes <= most_shared_bytes);
  static_assert(queries <= threads && queries % 16 == 0);
};

/// Tiles for the gradients of queries.
template <int size, bool dropped>
struct QueryTiles {
  static constexpr int warps = 4;
  static constexpr int threads = warps * warp_size;
  static constexpr int row_tiles = size < 128 ? 2 : 1;
  static constexpr int rows = 16 * row_tiles;  ///< per warp
  static constexpr int queries = warps * rows;
  static constexpr int keys = 32;
  // Queries and dy that stay in registers, in steps of 16 columns. Spills limit them.
  static constexpr int held_queries = size == 96 ? 0 : size / 16;
  static constexpr int held_dy = size == 64 ? 3 : held_queries;
  static constexpr int blocks = 2;  ///< per multiprocessor, unless shared memory allows fewer
  static constexpr size_t shared_bytes = size_t{2} * size * (2 * queries + 4 * keys);
  static_assert(shared_bytes <= most_shared_bytes);
  static_assert(keys % 32 == 0);
};

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
LOCKSTEP_DEVICE float log_sum_of(const Backward<T>& call, int query) {
  if (query >= call.problem.time) return INFINITY;
  return call.log_sum_exp[statistics_of_block(call.problem) + query] * log2_e;
}

/// The log_sum_exp (in base 2) and the dot of one query, loaded from global memory into registers.
struct Statistics {
  float log_sum, dot;

  template <class T>
  LOCKSTEP_DEVICE void fetch(const Backward<T>& call, int query) {
    const int64_t at = statistics_of_block(call.problem) + query;
    const bool valid = query < call.problem.time;
    log_sum = valid ? call.log_sum_exp[at] * log2_e : INFINITY;
    dot = valid ? call.dots[at] : 0.0f;
  }
};

/// Returns dy . y of a query of this block's head, on each of the four lanes that share the query. A lane
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
LOCKSTEP_DEVICE void make_dots(float (&dots)[row_tiles][2], const Backward<T>& call, int first_row) {
  const Rows<const T> y = rows_of_block<1>(call.y, call.problem, 0);
  const Rows<const T> dy = rows_of_block<1>(call.dy, call.problem, 0);
  float* const stored = call.dots + statistics_of_block(call.problem);
#pragma unroll
  for (int i = 0; i < 2 * row_tiles; ++i) {
    const int query = first_row + 8 * i + lane_index() / 4;
    dots[i / 2][i % 2] = dot_of_query(y, dy, query) * call.problem.dropout.kept;
    if (lane_index() % 4 == 0 && query < call.problem.time) stored[query] = dots[i / 2][i % 2];
  }
}

/// Returns where this block's head begins in a block's row of sums of `parts` parts.
LOCKSTEP_DEVICE float* sums_of_block(float* sums, const Problem& problem, int parts) {
  const int64_t row = int64_t{blockIdx.z} * gridDim.x + blockIdx.x;
  return sums + row * parts * problem.columns + static_cast<int>(blockIdx.y) * problem.size;
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

/// Adds the contribution of one tile of queries to the gradients of the warp's keys and values.
template <class Tiles, bool dropped, class T, int size>
LOCKSTEP_DEVICE void add_queries(float (&dk)[Tiles::row_tiles][size / 8][4],
                                 float (&dv)[Tiles::row_tiles][size / 8][4],
                                 const LeftRows<T, size, Tiles::row_tiles, Tiles::held_keys>& keys,
                                 const LeftRows<T, size, Tiles::row_tiles, Tiles::held_values>& values,
                                 const Tile<T, size>& queries, const Tile<T, size>& dy,
                                 const float* statistics, const Mask<dropped>& mask, int first_key,
                                 int first_query, const Problem& problem) {
  float weights[Tiles::row_tiles][Tiles::queries / 8][4] = {};
  float dscores[Tiles::row_tiles][Tiles::queries / 8][4] = {};
  multiply_by_rows(weights, keys, queries);
  if (first_query < first_key + Tiles::rows - 1) hide_later_keys<true>(weights, first_key - first_query);
  multiply_by_rows(dscores, values, dy);
  differentiate_columns(weights, dscores, statistics, statistics + Tiles::queries, mask, first_key,
                        first_query, problem);
  multiply_by_columns(dv, weights, dy);
  multiply_by_columns(dk, dscores, queries);
}

template <class T, int size, bool dropped>
__global__ void __launch_bounds__(KeyTiles<size, dropped>::threads, KeyTiles<size, dropped>::blocks)
    key_gradient_kernel(const Backward<T> call) {
  using Tiles = KeyTiles<size, dropped>;
  const Problem& problem = call.problem;
  T* const shared = dynamic_shared<T>();
  const Tile<T, size> keys{shared}, values{shared + Tiles::keys * size};
  const auto stage = [&](int tile, int part) {
    return Tile<T, size>{shared + (2 * Tiles::keys + ((tile & 1) * 2 + part) * Tiles::queries) * size};
  };
  const auto statistics = [&](int tile) {
    return reinterpret_cast<float*>(shared + Tiles::tile_elements) + (tile & 1) * 2 * Tiles::queries;
  };
  const int thread = static_cast<int>(threadIdx.x);
  Statistics next = {};
  const Rows<const T> query_rows =
      hold_address<Tiles::held_addresses>(rows_of_block<3>(call.qkv, problem, 0));
  const Rows<const T> dy_rows = hold_address<Tiles::held_addresses>(rows_of_block<1>(call.dy, problem, 0));
  const auto begin_copy_of_queries = [&](int tile) {
    const int first = tile * Tiles::queries;
    begin_copy<Tiles::threads, Tiles::queries>(stage(tile, 0), query_rows, first);
    begin_copy<Tiles::threads, Tiles::queries>(stage(tile, 1), dy_rows, first);
    cp_async_commit();
    if (thread < Tiles::queries) next.fetch(call, first + thread);
  };
  const auto put_statistics = [&](int tile) {
    if (thread >= Tiles::queries) return;
    statistics(tile)[thread] = next.log_sum;
    statistics(tile)[Tiles::queries + thread] = next.dot;
  };

  const int first_key = static_cast<int>(blockIdx.x) * Tiles::keys;
  const int row = warp_index() * Tiles::rows, first_row = first_key + row;
  begin_copy<Tiles::threads, Tiles::keys>(keys, rows_of_block<3>(call.qkv, problem, 1), first_key);
  begin_copy<Tiles::threads, Tiles::keys>(values, rows_of_block<3>(call.qkv, problem, 2), first_key);
  cp_async_commit();
  int tile = first_key / Tiles::queries;
  begin_copy_of_queries(tile);
  put_statistics(tile);
  cp_async_wait<1>();
  __syncthreads();

  const LeftRows<T, size, Tiles::row_tiles, Tiles::held_keys> left_keys(keys, row);
  const LeftRows<T, size, Tiles::row_tiles, Tiles::held_values> left_values(values, row);
  const Mask<dropped> mask(problem.dropout);
  float dk[Tiles::row_tiles][size / 8][4] = {}, dv[Tiles::row_tiles][size / 8][4] = {};
  const int tiles = (problem.time + Tiles::queries - 1) / Tiles::queries;
  for (; tile < tiles; ++tile) {
    cp_async_wait<0>();
    __syncthreads();
    if (tile + 1 < tiles) begin_copy_of_queries(tile + 1);
    const int first_query = tile * Tiles::queries;
    if (first_row < first_query + Tiles::queries)  // otherwise every query is before the warp's keys
      add_queries<Tiles>(dk, dv, left_keys, left_values, stage(tile, 0), stage(tile, 1), statistics(tile),
                         mask, first_row, first_query, problem);
    if (tile + 1 < tiles) put_statistics(tile + 1);
  }
  store_rows(rows_of_block<3>(call.dqkv, problem, 1), first_row, keys, row, dk,
             [&](int, int) { return problem.scale * problem.dropout.kept_scale; });
  store_rows(rows_of_block<3>(call.dqkv, problem, 2), first_row, values, row, dv,
             [&](int, int) { return problem.dropout.kept_scale; });
  if (call.key_sums == nullptr) return;
  float* const scratch = reinterpret_cast<float*>(shared + 2 * Tiles::keys * size);
  float* const sums = sums_of_block(call.key_sums, problem, 2);
  const int rows = min(Tiles::keys, problem.time - first_key);
  store_column_sums<Tiles::threads>(keys, rows, problem.size, scratch, sums);
  store_column_sums<Tiles::threads>(values, rows, problem.size, scratch, sums + problem.columns);
}

template <class T, int size, bool dropped>
__global__ void __launch_bounds__(QueryTiles<size, dropped>::threads, QueryTiles<size, dropped>::blocks)
    query_gradient_kernel(const Backward<T> call) {
  using Tiles = QueryTiles<size, dropped>;
  const Problem& problem = call.problem;
  T* const shared = dynamic_shared<T>();
  const Tile<T, size> queries{shared}, dy{shared + Tiles::queries * size};
  const auto stage = [&](int tile, int part) {
    return Tile<T, size>{shared + (2 * Tiles::queries + ((tile & 1) * 2 + part) * Tiles::keys) * size};
  };
  const Rows<const T> rows[] = {hold_address<true>(rows_of_block<3>(call.qkv, problem, 1)),
                                hold_address<true>(rows_of_block<3>(call.qkv, problem, 2))};
  const auto begin_copy_of_keys = [&](int tile) {
    for (int part = 0; part < 2; ++part)
      begin_copy<Tiles::threads, Tiles::keys>(stage(tile, part), rows[part], tile * Tiles::keys);
    cp_async_commit();
  };

  // The last queries see the most keys. They start first so that no long block is left at the end.
  const int first_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Tiles::queries;
  const int row = warp_index() * Tiles::rows, first_row = first_query + row;
  begin_copy<Tiles::threads, Tiles::queries>(queries, rows_of_block<3>(call.qkv, problem, 0), first_query);
  begin_copy<Tiles::threads, Tiles::queries>(dy, rows_of_block<1>(call.dy, problem, 0), first_query);
  cp_async_commit();
  int tile = (min(first_query + Tiles::queries, problem.time) - 1) / Tiles::keys;
  begin_copy_of_keys(tile);
  float log_sums[Tiles::row_tiles][2], dots[Tiles::row_tiles][2];
  make_dots(dots, call, first_row);
#pragma unroll
  for (int i = 0; i < 2 * Tiles::row_tiles; ++i) {
    const int query = first_row + 8 * i + lane_index() / 4;
    log_sums[i / 2][i % 2] = log_sum_of(call, query);
  }
  cp_async_wait<1>();
  __syncthreads();

  const LeftRows<T, size, Tiles::row_tiles, Tiles::held_queries> left_queries(queries, row);
  const LeftRows<T, size, Tiles::row_tiles, Tiles::held_dy> left_dy(dy, row);
  const Mask<dropped> mask(problem.dropout);
  float dq[Tiles::row_tiles][size / 8][4] = {};
  for (; tile >= 0; --tile) {
    cp_async_wait<0>();
    __syncthreads();
    if (tile > 0) begin_copy_of_keys(tile - 1);
    const int first_key = tile * Tiles::keys;
    if (first_row + Tiles::rows <= first_key) continue;
    float scores[Tiles::row_tiles][Tiles::keys / 8][4] = {},
                                                 dweights[Tiles::row_tiles][Tiles::keys / 8][4] = {};
    multiply_by_rows(scores, left_queries, stage(tile, 0));
    if (first_row < first_key + Tiles::keys - 1) hide_later_keys<false>(scores, first_row - first_key);
    multiply_by_rows(dweights, left_dy, stage(tile, 1));
    differentiate_rows(scores, dweights, log_sums, dots, mask, first_row, first_key, problem);
    multiply_by_columns(dq, scores, stage(tile, 0));
  }
  store_rows(rows_of_block<3>(call.dqkv, problem, 0), first_row, queries, row, dq,
             [&](int, int) { return problem.scale * problem.dropout.kept_scale; });
  if (call.query_sums == nullptr) return;
  float* const scratch = reinterpret_cast<float*>(shared + 2 * Tiles::queries * size);
  store_column_sums<Tiles::threads>(queries, min(Tiles::queries, problem.time - first_query), problem.size,
                                    scratch, sums_of_block(call.query_sums, problem, 1));
}

template <class Tiles, class T>
void launch_over(int rows, const CudaStream& stream, void (*kernel)(Backward<T>), const Backward<T>& call) {
  const Problem& problem = call.problem;
  launch_grid(
      stream,
      {.blocks = blocks_of(problem, rows), .threads = Tiles::threads, .shared_bytes = Tiles::shared_bytes},
      kernel, call);
}

}  // namespace

std::pair<int64_t, int64_t> blocks_of_sums(const Problem& problem) {
  std::pair<int64_t, int64_t> blocks;
  with_variant(problem, [&]<int size, bool dropped>() {
    blocks = {int64_t{problem.batch} * blocks_for(problem.time, QueryTiles<size, dropped>::queries),
              int64_t{problem.batch} * blocks_for(problem.time, KeyTiles<size, dropped>::keys)};
  });
  return blocks;
}

template <class T>
void run_on_tensor_cores(const CudaStream& stream, const Backward<T>& call) {
  with_variant(call.problem, [&]<int size, bool dropped>() {
    using Keys = KeyTiles<size, dropped>;
    using Queries = QueryTiles<size, dropped>;
    launch_over<Queries>(Queries::queries, stream, query_gradient_kernel<T, size, dropped>, call);
    launch_over<Keys>(Keys::keys, stream, key_gradient_kernel<T, size, dropped>, call);
  });
}
template void run_on_tensor_cores(const CudaStream&, const Backward<__nv_bfloat16>&);
template void run_on_tensor_cores(const CudaStream&, const Backward<__half>&);

}  // namespace lockstep::cuda::attention
