// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/cuda/attention_dropout.cuh"
#include "lockstep/kernels/cuda/attention_gradients.cuh"
#include "lockstep/kernels/cuda/attention_tile.cuh"
#include "lockstep/kernels/cuda/device/launch.cuh"

// Backward of attention on tensor cores, from the saved log_sum_exp (Dao et al. 2022, appendix B.4). Two
// kernels give each sum one owner and one order. In the first, a block owns a tile of queries and walks over
// keys and values as the forward does. It also computes dy . y of its queries for both kernels. In the second
// kernel, a block owns a tile of keys and values, and each warp owns rows of it. The block walks over the
// queries from the diagonal on, for each query head of a group. Its rows are keys. So weights and gradients
// of scores are left factors of the products with dy and with the queries, and never leave registers. Both
// kernels compute the scores and the gradients of weights. A visible score takes seven products of 2 size
// operations instead of five. In return, blocks share no sums in memory. Bytes: qkv and dy once in each
// kernel, y and dqkv once. Bound: tensor cores and reads of shared memory.

namespace lockstep::cuda::attention {
namespace {

/// Tiles for the gradients of keys and values. A warp has two tiles of rows if registers allow it. The walk
/// over a group of query heads needs more registers than that over one.
template <int size, bool dropped, bool grouped>
struct KeyTiles {
  static constexpr int warps = 4;
  static constexpr int threads = warps * warp_size;
  static constexpr int row_tiles = size <= (dropped || grouped ? 32 : 64) ? 2 : 1;
  static constexpr int rows = 16 * row_tiles;  ///< per warp
  static constexpr int keys = warps * rows;
  static constexpr int queries_of_one = row_tiles == 2 || size == 128 ? 32 : 64;
  static constexpr int queries = grouped && dropped && size > 64 ? queries_of_one / 2 : queries_of_one;
  static constexpr int statistics = queries < warp_size ? warp_size : queries;  ///< whole warps read them
  // What stays in registers: addresses, and keys and values in steps of 16 columns. Spills limit it.
  static constexpr bool held_addresses = size != 64 || row_tiles == 1;
  static constexpr bool holds_keys = held_addresses && size != 96 && (size != 64 || dropped || !grouped);
  static constexpr int held_keys = !holds_keys ? 0 : size == 128 ? 4 : size / 16;
  static constexpr int held_values = size > 64 ? 0 : held_keys;
  static constexpr int blocks = 2;  ///< per multiprocessor, unless shared memory allows fewer
  static constexpr size_t tile_elements = size_t{size} * (2 * keys + 4 * queries);
  static constexpr size_t shared_bytes = 2 * tile_elements + 4 * statistics * sizeof(float);
  static_assert(shared_bytes <= most_shared_bytes);
  static_assert(statistics <= threads && statistics % warp_size == 0 && queries % 16 == 0);
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
  differentiate_columns(weights, dscores, statistics, statistics + Tiles::statistics, mask, first_key,
                        first_query, problem);
  multiply_by_columns(dv, weights, dy);
  multiply_by_columns(dk, dscores, queries);
}

/// Writes the gradients of the warp's keys and values, and the sums of the block's columns if wanted.
template <class Tiles, class T, int size>
LOCKSTEP_DEVICE void store_gradients(const Backward<T>& call, const Tile<T, size>& keys,
                                     const Tile<T, size>& values, int first_key,
                                     const float (&dk)[Tiles::row_tiles][size / 8][4],
                                     const float (&dv)[Tiles::row_tiles][size / 8][4]) {
  const Problem& problem = call.problem;
  const int row = warp_index() * Tiles::rows, head = head_of_block();
  store_rows(key_rows_of(call.dqkv, problem, head), first_key + row, keys, row, dk,
             [&](int, int) { return problem.scale * problem.dropout.kept_scale; });
  store_rows(value_rows_of(call.dqkv, problem, head), first_key + row, values, row, dv,
             [&](int, int) { return problem.dropout.kept_scale; });
  if (call.key_sums == nullptr) return;
  float* const scratch = reinterpret_cast<float*>(keys.data + 2 * Tiles::keys * size);
  float* const sums = sums_of_block(call.key_sums, problem, 2 * problem.key_columns);
  const int rows = min(Tiles::keys, problem.time - first_key);
  store_column_sums<Tiles::threads>(keys, rows, problem.size, scratch, sums);
  store_column_sums<Tiles::threads>(values, rows, problem.size, scratch, sums + problem.key_columns);
}

/// The two stages in shared memory through which the tiles of a query head pass: queries, dy and statistics.
template <class Tiles, class T, int size>
struct QueryStages {
  const Backward<T>& call;
  T* shared;  ///< of the block
  int head = 0;
  Rows<const T> queries = {}, dy = {};
  Statistics next = {};  ///< of the tile that is copied

  LOCKSTEP_DEVICE Tile<T, size> stage(int tile, int part) const {
    return {shared + (2 * Tiles::keys + ((tile & 1) * 2 + part) * Tiles::queries) * size};
  }
  LOCKSTEP_DEVICE float* statistics(int tile) const {
    return reinterpret_cast<float*>(shared + Tiles::tile_elements) + (tile & 1) * 2 * Tiles::statistics;
  }

  LOCKSTEP_DEVICE void begin_tile(int tile) {
    const int first = tile * Tiles::queries, thread = static_cast<int>(threadIdx.x);
    begin_copy<Tiles::threads, Tiles::queries>(stage(tile, 0), queries, first);
    begin_copy<Tiles::threads, Tiles::queries>(stage(tile, 1), dy, first);
    cp_async_commit();
    if (thread < Tiles::statistics) next.fetch(call, head, first + thread);
  }
  LOCKSTEP_DEVICE void put_statistics(int tile) const {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread >= Tiles::statistics) return;
    statistics(tile)[thread] = next.log_sum;
    statistics(tile)[Tiles::statistics + thread] = next.dot;
  }
  /// Begins with the first tile of a head.
  LOCKSTEP_DEVICE void begin_head(int of, int tile) {
    head = of;
    queries = hold_address<Tiles::held_addresses>(query_rows_of(call.qkv, call.problem, head));
    dy = hold_address<Tiles::held_addresses>(output_rows_of(call.dy, call.problem, head));
    begin_tile(tile);
    put_statistics(tile);
  }
};

/// Computes the gradients of a block's keys and values. Their sums continue from one query head of the group
/// to the next. Without `grouped` there is one.
template <bool grouped, class T, int size, bool dropped>
LOCKSTEP_DEVICE void differentiate_keys(const Backward<T>& call) {
  using Tiles = KeyTiles<size, dropped, grouped>;
  const Problem& problem = call.problem;
  T* const shared = dynamic_shared<T>();
  const Tile<T, size> keys{shared}, values{shared + Tiles::keys * size};
  QueryStages<Tiles, T, size> stages{call, shared};
  const int key_head = head_of_block(), first_key = static_cast<int>(blockIdx.x) * Tiles::keys;
  const int row = warp_index() * Tiles::rows, first_row = first_key + row;
  begin_copy<Tiles::threads, Tiles::keys>(keys, key_rows_of(call.qkv, problem, key_head), first_key);
  begin_copy<Tiles::threads, Tiles::keys>(values, value_rows_of(call.qkv, problem, key_head), first_key);
  cp_async_commit();
  int tile = first_key / Tiles::queries;
  stages.begin_head(grouped ? key_head * problem.group : key_head, tile);
  cp_async_wait<1>();
  __syncthreads();

  const LeftRows<T, size, Tiles::row_tiles, Tiles::held_keys> left_keys(keys, row);
  const LeftRows<T, size, Tiles::row_tiles, Tiles::held_values> left_values(values, row);
  float dk[Tiles::row_tiles][size / 8][4] = {}, dv[Tiles::row_tiles][size / 8][4] = {};
  const int tiles = (problem.time + Tiles::queries - 1) / Tiles::queries;
  for (;;) {
    const Mask<dropped> mask(problem.dropout, stages.head);
    for (; tile < tiles; ++tile) {
      cp_async_wait<0>();
      __syncthreads();
      if (tile + 1 < tiles) stages.begin_tile(tile + 1);
      const int first_query = tile * Tiles::queries;
      if (first_row < first_query + Tiles::queries)  // otherwise every query is before the warp's keys
        add_queries<Tiles>(dk, dv, left_keys, left_values, stages.stage(tile, 0), stages.stage(tile, 1),
                           stages.statistics(tile), mask, first_row, first_query, problem);
      if (tile + 1 < tiles) stages.put_statistics(tile + 1);
    }
    if (!grouped || stages.head + 1 == (key_head + 1) * problem.group) break;
    __syncthreads();  // other warps may still read the stages
    tile = first_key / Tiles::queries;
    stages.begin_head(stages.head + 1, tile);
  }
  store_gradients<Tiles>(call, keys, values, first_key, dk, dv);
}

template <class T, int size, bool dropped>
__global__ void __launch_bounds__(KeyTiles<size, dropped, false>::threads,
                                  KeyTiles<size, dropped, false>::blocks)
    key_gradient_kernel(const Backward<T> call) {
  differentiate_keys<false, T, size, dropped>(call);
}

template <class T, int size, bool dropped>
__global__ void __launch_bounds__(KeyTiles<size, dropped, true>::threads,
                                  KeyTiles<size, dropped, true>::blocks)
    grouped_key_gradient_kernel(const Backward<T> call) {
  differentiate_keys<true, T, size, dropped>(call);
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
  const int head = head_of_block(), key_head = head / problem.group;
  const Rows<const T> rows[] = {hold_address<true>(key_rows_of(call.qkv, problem, key_head)),
                                hold_address<true>(value_rows_of(call.qkv, problem, key_head))};
  const auto begin_copy_of_keys = [&](int tile) {
    for (int part = 0; part < 2; ++part)
      begin_copy<Tiles::threads, Tiles::keys>(stage(tile, part), rows[part], tile * Tiles::keys);
    cp_async_commit();
  };

  // The last queries see the most keys. They start first so that no long block is left at the end.
  const int first_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Tiles::queries;
  const int row = warp_index() * Tiles::rows, first_row = first_query + row;
  begin_copy<Tiles::threads, Tiles::queries>(queries, query_rows_of(call.qkv, problem, head), first_query);
  begin_copy<Tiles::threads, Tiles::queries>(dy, output_rows_of(call.dy, problem, head), first_query);
  cp_async_commit();
  int tile = (min(first_query + Tiles::queries, problem.time) - 1) / Tiles::keys;
  begin_copy_of_keys(tile);
  float log_sums[Tiles::row_tiles][2], dots[Tiles::row_tiles][2];
  make_dots(dots, call, head, first_row);
#pragma unroll
  for (int i = 0; i < 2 * Tiles::row_tiles; ++i) {
    const int query = first_row + 8 * i + lane_index() / 4;
    log_sums[i / 2][i % 2] = log_sum_of(call, head, query);
  }
  cp_async_wait<1>();
  __syncthreads();

  const LeftRows<T, size, Tiles::row_tiles, Tiles::held_queries> left_queries(queries, row);
  const LeftRows<T, size, Tiles::row_tiles, Tiles::held_dy> left_dy(dy, row);
  const Mask<dropped> mask(problem.dropout, head);
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
  store_rows(query_rows_of(call.dqkv, problem, head), first_row, queries, row, dq,
             [&](int, int) { return problem.scale * problem.dropout.kept_scale; });
  if (call.query_sums == nullptr) return;
  float* const scratch = reinterpret_cast<float*>(shared + 2 * Tiles::queries * size);
  store_column_sums<Tiles::threads>(queries, min(Tiles::queries, problem.time - first_query), problem.size,
                                    scratch, sums_of_block(call.query_sums, problem, problem.columns));
}

template <class Tiles, class T>
void launch_over(int rows, int heads, const CudaStream& stream, void (*kernel)(Backward<T>),
                 const Backward<T>& call) {
  launch_grid(stream,
              {.blocks = blocks_of(call.problem, rows, heads),
               .threads = Tiles::threads,
               .shared_bytes = Tiles::shared_bytes},
              kernel, call);
}

}  // namespace

std::pair<int64_t, int64_t> blocks_of_sums(const Problem& problem) {
  std::pair<int64_t, int64_t> blocks;
  with_variant(problem, [&]<int size, bool dropped>() {
    const int queries = QueryTiles<size, dropped>::queries;
    const int keys =
        problem.group == 1 ? KeyTiles<size, dropped, false>::keys : KeyTiles<size, dropped, true>::keys;
    blocks = {int64_t{problem.batch} * blocks_for(problem.time, queries),
              int64_t{problem.batch} * blocks_for(problem.time, keys)};
  });
  return blocks;
}

template <class T>
void run_on_tensor_cores(const CudaStream& stream, const Backward<T>& call) {
  const Problem& problem = call.problem;
  with_variant(problem, [&]<int size, bool dropped>() {
    launch_over<QueryTiles<size, dropped>>(QueryTiles<size, dropped>::queries, problem.heads, stream,
                                           query_gradient_kernel<T, size, dropped>, call);
    if (problem.group == 1)
      launch_over<KeyTiles<size, dropped, false>>(KeyTiles<size, dropped, false>::keys, problem.key_heads,
                                                  stream, key_gradient_kernel<T, size, dropped>, call);
    else
      launch_over<KeyTiles<size, dropped, true>>(KeyTiles<size, dropped, true>::keys, problem.key_heads,
                                                 stream, grouped_key_gradient_kernel<T, size, dropped>, call);
  });
}
template void run_on_tensor_cores(const CudaStream&, const Backward<__nv_bfloat16>&);
template void run_on_tensor_cores(const CudaStream&, const Backward<__half>&);

}  // namespace lockstep::cuda::attention
