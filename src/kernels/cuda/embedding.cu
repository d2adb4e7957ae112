// SPDX-License-Identifier: Apache-2.0

// Forward: a warp per token copies its row, 16 bytes per lane. Bytes: 2 arrays of the size of y.
//
// Backward: a stable radix sort on the device sorts ids and their positions, 8 bits per pass. A row's
// positions are then one run in ascending order. A warp per row and chunk of columns (16 bytes per lane) adds
// a run of at most 64 dy in order. A longer run is cut from its start into pieces of 64. Other warps add the
// pieces before, and the row's warp adds their sums in order. So a row's bits depend on its own dy alone, and
// an id that fills half of the batch keeps the whole GPU busy. Bytes: dy once and dtable once in f32. If sums
// are added to dtable, its used rows move twice instead. Bound: memory in both directions. The sort moves
// some 16 bytes per token and pass, and costs its launches.

#include <bit>

#include "lockstep/core/memory.h"
#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/cuda/device/pack.cuh"
#include "lockstep/kernels/cuda/device/reduce.cuh"
#include "lockstep/kernels/embedding.h"

namespace lockstep {
namespace {

using cuda::all_lanes;
using cuda::lane_index;
using cuda::Pack;
using cuda::warp_index;
using cuda::warp_size;

constexpr int threads = 256;
constexpr int warps = threads / warp_size;

// ---- forward ----

/// 16 bytes of a row, or one element.
template <class T, bool packed>
using Unit = std::conditional_t<packed, Pack<T>, T>;

template <class T, bool packed>
__global__ __launch_bounds__(threads) void forward_kernel(const int32_t* ids, int64_t tokens, const T* table,
                                                          int64_t rows, int64_t columns, T* y) {
  using U = Unit<T, packed>;
  const int64_t token = static_cast<int64_t>(blockIdx.x) * warps + warp_index();
  if (token >= tokens) return;
  const int64_t units = columns / static_cast<int64_t>(sizeof(U) / sizeof(T));
  const int64_t id = ids[token];
  const bool is_inside = id >= 0 && id < rows;
  const auto* from = reinterpret_cast<const U*>(table + (is_inside ? id : 0) * columns);
  auto* to = reinterpret_cast<U*>(y + token * columns);
  U nothing;
  for (int j = 0; j < static_cast<int>(sizeof(U) / sizeof(T)); ++j)
    reinterpret_cast<T*>(&nothing)[j] = cuda::from_float<T>(__uint_as_float(0x7fc00000u));
  for (int64_t i = lane_index(); i < units; i += warp_size) to[i] = is_inside ? from[i] : nothing;
}

// ---- the sort ----

/// A token: the row it adds to, and its position.
struct alignas(8) Entry {
  uint32_t row;
  uint32_t position;
};

constexpr int digit_bits = 8;
constexpr int digits = 1 << digit_bits;
constexpr int rounds = 8;  // rounds of a warp over its share of a tile
constexpr int tile = threads * rounds;
static_assert(digits == threads, "a thread per digit adds up what the warps have counted");

/// The entries of a pass. The first pass reads tokens, with ids outside the table after all rows. Other
/// passes read the output of the pass before.
struct Source {
  const int32_t* ids;
  const Entry* entries;
  int64_t count;
  uint32_t rows;

  LOCKSTEP_DEVICE Entry operator[](int64_t i) const {
    if (entries) return entries[i];
    const int32_t id = ids[i];
    const bool is_inside = id >= 0 && static_cast<uint32_t>(id) < rows;
    return {is_inside ? static_cast<uint32_t>(id) : rows, static_cast<uint32_t>(i)};
  }
};

/// Returns the lanes with the calling lane's digit, among those that have one.
LOCKSTEP_DEVICE uint32_t lanes_alike(uint32_t digit, bool has_digit) {
  uint32_t alike = __ballot_sync(all_lanes, has_digit);
#pragma unroll
  for (int bit = 0; bit < digit_bits; ++bit) {
    const bool is_set = (digit >> bit) & 1u;
    const uint32_t set = __ballot_sync(all_lanes, is_set);
    alike &= is_set ? set : ~set;
  }
  return alike;
}

/// Visits the warp's share of the block's tile in order. visit(round, entry, earlier) gets the number of
/// earlier entries of the share with the same digit. At the end counts[digit] is the number of all of them.
template <class Visit>
LOCKSTEP_DEVICE void visit_share(const Source& source, int shift, uint32_t* counts, Visit visit) {
  const int lane = lane_index();
  for (int digit = lane; digit < digits; digit += warp_size) counts[digit] = 0;
  __syncwarp();
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * tile + warp_index() * (warp_size * rounds) + lane;
#pragma unroll
  for (int round = 0; round < rounds; ++round) {
    const int64_t i = begin + round * warp_size;
    const bool is_there = i < source.count;
    const Entry entry = is_there ? source[i] : Entry{};
    const uint32_t digit = (entry.row >> shift) % digits;
    const uint32_t alike = lanes_alike(digit, is_there);
    const uint32_t before = alike & ((1u << lane) - 1u);
    const uint32_t counted = counts[digit];
    __syncwarp();
    // The first lane of each digit counts for all, so no two lanes write to one place.
    if (is_there && before == 0) counts[digit] = counted + static_cast<uint32_t>(__popc(alike));
    __syncwarp();
    visit(round, entry, counted + static_cast<uint32_t>(__popc(before)));
  }
}

/// Sets counts[digit][tile] to the number of the tile's entries that have the digit.
__global__ __launch_bounds__(threads) void count_kernel(Source source, int shift, uint32_t* counts) {
  auto* by_warp = cuda::dynamic_shared<uint32_t>();
  visit_share(source, shift, by_warp + warp_index() * digits, [](int, Entry, uint32_t) {});
  __syncthreads();
  uint32_t sum = 0;
#pragma unroll
  for (int warp = 0; warp < warps; ++warp) sum += by_warp[warp * digits + threadIdx.x];
  counts[static_cast<int64_t>(threadIdx.x) * gridDim.x + blockIdx.x] = sum;
}

constexpr int scan_threads = 1024;

/// Replaces each count by the sum of those before it. One block runs, and a thread takes a contiguous share.
__global__ __launch_bounds__(scan_threads) void scan_kernel(uint32_t* counts, int64_t size) {
  auto* by_warp = cuda::dynamic_shared<uint32_t>();
  const int64_t share = (size + scan_threads - 1) / scan_threads;
  const int64_t begin = static_cast<int64_t>(threadIdx.x) * share;
  const int64_t end = begin + share < size ? begin + share : size;
  uint32_t total = 0;
  for (int64_t i = begin; i < end; ++i) total += counts[i];
  uint32_t sum = total;  // the sum of the lanes up to this one
#pragma unroll
  for (int distance = 1; distance < warp_size; distance *= 2) {
    const uint32_t lower = __shfl_up_sync(all_lanes, sum, static_cast<unsigned>(distance));
    if (lane_index() >= distance) sum += lower;
  }
  if (lane_index() == warp_size - 1) by_warp[warp_index()] = sum;
  __syncthreads();
  uint32_t before = sum - total;
  for (int warp = 0; warp < warp_index(); ++warp) before += by_warp[warp];
  for (int64_t i = begin; i < end; ++i) {
    const uint32_t count = counts[i];
    counts[i] = before;
    before += count;
  }
}

/// Writes each entry to its place. All lower digits are before it, and all earlier entries with its digit.
__global__ __launch_bounds__(threads) void scatter_kernel(Source source, int shift, const uint32_t* offsets,
                                                          Entry* sorted) {
  auto* by_warp = cuda::dynamic_shared<uint32_t>();
  uint32_t* own = by_warp + warp_index() * digits;
  Entry entries[rounds];
  uint32_t earlier[rounds];
  visit_share(source, shift, own, [&](int round, Entry entry, uint32_t before) {
    entries[round] = entry;
    earlier[round] = before;
  });
  __syncthreads();
  uint32_t offset = offsets[static_cast<int64_t>(threadIdx.x) * gridDim.x + blockIdx.x];
#pragma unroll
  for (int warp = 0; warp < warps; ++warp) {
    const uint32_t count = by_warp[warp * digits + threadIdx.x];
    by_warp[warp * digits + threadIdx.x] = offset;
    offset += count;
  }
  __syncthreads();
  const int64_t begin =
      static_cast<int64_t>(blockIdx.x) * tile + warp_index() * (warp_size * rounds) + lane_index();
#pragma unroll
  for (int round = 0; round < rounds; ++round)
    if (begin + round * warp_size < source.count)
      sorted[own[(entries[round].row >> shift) % digits] + earlier[round]] = entries[round];
}

// ---- sums over runs ----

constexpr int piece = 64;

/// Sets first[row] to where the row's run begins, for rows [0, rows]. Ids outside the table begin at
/// first[rows].
__global__ __launch_bounds__(threads) void find_runs_kernel(const Entry* sorted, int64_t count, int64_t rows,
                                                            uint32_t* first) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (row > rows) return;
  int64_t low = 0, high = count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (sorted[middle].row < row)
      low = middle + 1;
    else
      high = middle;
  }
  first[row] = static_cast<uint32_t>(low);
}

/// Returns the slot for the sum of the piece that begins at place `start`. The piece is part of a long run
/// that begins at place `run`. In a window of 64 places at most one long run begins, and at most one later
/// piece of a run.
LOCKSTEP_DEVICE int64_t slot_of_piece(int64_t start, int64_t run) {
  return start / piece * 2 + (start > run);
}

/// Adds the values at row(j) for j = 0, 1, ... < count to `sum`, in order. row(j) points at this lane's
/// columns.
template <class T, int width, class Row>
LOCKSTEP_DEVICE void add_rows(float (&sum)[width], int64_t count, Row row) {
#pragma unroll 4
  for (int64_t j = 0; j < count; ++j) {
    const T* values = row(j);
    if constexpr (width == 1) {
      sum[0] += cuda::to_float(*values);
    } else {
#pragma unroll
      for (int start = 0; start < width; start += Pack<T>::size) {
        const Pack<T> pack = cuda::load_pack(values + start);
#pragma unroll
        for (int i = 0; i < Pack<T>::size; ++i) sum[start + i] += pack[i];
      }
    }
  }
}

/// Stores sum in `to`, or adds it if `adds`.
template <int width>
LOCKSTEP_DEVICE void store(float* to, const float (&sum)[width], bool adds = false) {
  if constexpr (width == 1) {
    *to = adds ? *to + sum[0] : sum[0];
  } else {
#pragma unroll
    for (int start = 0; start < width; start += Pack<float>::size) {
      const Pack<float> before = adds ? cuda::load_pack(to + start) : Pack<float>{};
      Pack<float> pack;
#pragma unroll
      for (int i = 0; i < Pack<float>::size; ++i)
        pack.set(i, adds ? before[i] + sum[start + i] : sum[start + i]);
      cuda::store_pack(to + start, pack);
    }
  }
}

template <class T>
struct Backward {
  const Entry* sorted;
  const uint32_t* first;
  int64_t tokens;
  int64_t rows;
  int64_t columns;
  const T* dy;
  float* pieces;  // [slots][columns]
  float* dtable;
  bool adds;
};

/// Sums the piece of a slot, if there is one. A warp takes a slot and a chunk of columns.
template <class T, int width>
__global__ __launch_bounds__(threads) void pieces_kernel(Backward<T> k) {
  const int64_t slot = static_cast<int64_t>(blockIdx.x) * warps + warp_index();
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * warp_size + lane_index()) * width;
  const int64_t window = slot / 2 * piece;
  if (window >= k.tokens || column >= k.columns) return;
  const bool begins_run = slot % 2 == 0;
  const int64_t window_end = window + piece < k.tokens ? window + piece : k.tokens;
  // A long run that begins in the window ends after it. One that began earlier holds the window's first
  // place.
  const int64_t row = k.sorted[begins_run ? window_end - 1 : window].row;
  if (row >= k.rows) return;
  const int64_t run = k.first[row];
  const int64_t run_end = k.first[row + 1];
  const int64_t start = begins_run ? run : run + (window - run + piece - 1) / piece * piece;
  const bool is_there = begins_run ? run >= window : start > run && start < run_end;
  if (run_end - run <= piece || !is_there) return;
  float sum[width] = {};
  add_rows<T>(sum, start + piece < run_end ? piece : run_end - start,
              [&](int64_t j) { return k.dy + k.sorted[start + j].position * k.columns + column; });
  store(k.pieces + slot * k.columns + column, sum);
}

/// Sums the runs. A warp takes a row and a chunk of columns.
template <class T, int width>
__global__ __launch_bounds__(threads) void rows_kernel(Backward<T> k) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * warps + warp_index();
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * warp_size + lane_index()) * width;
  if (row >= k.rows || column >= k.columns) return;
  const int64_t run = k.first[row];
  const int64_t count = k.first[row + 1] - run;
  float sum[width] = {};
  if (count <= piece)
    add_rows<T>(sum, count,
                [&](int64_t j) { return k.dy + k.sorted[run + j].position * k.columns + column; });
  else
    add_rows<float>(sum, (count + piece - 1) / piece, [&](int64_t j) {
      return k.pieces + slot_of_piece(run + j * piece, run) * k.columns + column;
    });
  if (k.adds && count == 0) return;
  store(k.dtable + row * k.columns + column, sum, k.adds);
}

template <class T, int width>
void add_runs(const CudaStream& stream, const Backward<T>& k) {
  const unsigned chunks = cuda::blocks_for(k.columns, warp_size * width);
  const int64_t slots = (k.tokens + piece - 1) / piece * 2;
  if (k.tokens > piece)
    cuda::launch_grid(stream, {.blocks = dim3(cuda::blocks_for(slots, warps), chunks), .threads = threads},
                      pieces_kernel<T, width>, k);
  cuda::launch_grid(stream, {.blocks = dim3(cuda::blocks_for(k.rows, warps), chunks), .threads = threads},
                    rows_kernel<T, width>, k);
}

/// Sorts the tokens by row; `spare` is as large as `sorted`.
void sort_tokens(const CudaStream& stream, const View& ids, int64_t rows, uint32_t* counts, Entry* sorted,
                 Entry* spare) {
  const unsigned tiles = cuda::blocks_for(ids.size(), tile);
  constexpr size_t shared_bytes = warps * digits * sizeof(uint32_t);
  const int bits = std::bit_width(static_cast<uint64_t>(rows));
  const int passes = (bits + digit_bits - 1) / digit_bits;
  Source source{
      .ids = ids.as<int32_t>(), .entries = nullptr, .count = ids.size(), .rows = static_cast<uint32_t>(rows)};
  for (int pass = 0; pass < passes; ++pass) {
    Entry* const target = (passes - pass) % 2 == 1 ? sorted : spare;
    const int shift = pass * digit_bits;
    const cuda::Grid grid{.blocks = tiles, .threads = threads, .shared_bytes = shared_bytes};
    cuda::launch_grid(stream, grid, count_kernel, source, shift, counts);
    cuda::launch_grid(stream,
                      {.blocks = 1, .threads = scan_threads, .shared_bytes = warp_size * sizeof(uint32_t)},
                      scan_kernel, counts, int64_t{digits} * tiles);
    cuda::launch_grid(stream, grid, scatter_kernel, source, shift, counts, target);
    source.entries = target;
  }
}

}  // namespace

void run(CudaStream stream, const EmbeddingForward& k) {
  const int64_t columns = k.table.shape[1];
  cuda::with_device_type(k.table.dtype, [&]<class T>() {
    const auto* table = static_cast<const T*>(k.table.data);
    auto* y = static_cast<T*>(k.y.data);
    const bool packed = cuda::is_aligned(table, y) && columns % Pack<T>::size == 0;
    cuda::launch_grid(stream, {.blocks = cuda::blocks_for(k.ids.size(), warps), .threads = threads},
                      packed ? forward_kernel<T, true> : forward_kernel<T, false>, k.ids.as<int32_t>(),
                      k.ids.size(), table, k.table.shape[0], columns, y);
  });
}

void run(CudaStream stream, const EmbeddingBackward& k) {
  const int64_t rows = k.dtable.shape[0];
  const int64_t columns = k.dtable.shape[1];
  const int64_t tokens = k.ids.size();
  expect(rows < INT32_MAX && tokens < INT32_MAX, "an embedding of ", tokens, " ids in ", rows,
         " rows is too large for a GPU: both numbers must be below 2^31 - 1");
  const auto take = [&]<class T>(int64_t count, T*& memory) {
    const auto block = allocate(count * static_cast<int64_t>(sizeof(T)), stream);
    memory = reinterpret_cast<T*>(block.get());
    return block;
  };
  Entry *sorted = nullptr, *spare = nullptr;
  uint32_t *counts = nullptr, *first = nullptr;
  float* pieces = nullptr;
  const auto sorted_memory = take(tokens, sorted);
  const auto spare_memory = take(tokens, spare);
  const auto counts_memory = take(int64_t{digits} * cuda::blocks_for(tokens, tile), counts);
  const auto first_memory = take(rows + 1, first);
  const auto pieces_memory = take((tokens > piece ? (tokens + piece - 1) / piece * 2 : 0) * columns, pieces);
  cuda::with_device_type(k.dy.dtype, [&]<class T>() {
    sort_tokens(stream, k.ids, rows, counts, sorted, spare);
    cuda::launch_grid(stream, {.blocks = cuda::blocks_for(rows + 1, threads), .threads = threads},
                      find_runs_kernel, sorted, tokens, rows, first);
    const Backward<T> backward{.sorted = sorted,
                               .first = first,
                               .tokens = tokens,
                               .rows = rows,
                               .columns = columns,
                               .dy = static_cast<const T*>(k.dy.data),
                               .pieces = pieces,
                               .dtable = k.dtable.as<float>(),
                               .adds = k.adds};
    constexpr int width = Pack<T>::size;
    if (columns % width == 0 && cuda::is_aligned(backward.dy, backward.dtable, pieces))
      add_runs<T, width>(stream, backward);
    else
      add_runs<T, 1>(stream, backward);
  });
}

}  // namespace lockstep
