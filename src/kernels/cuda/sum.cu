// SPDX-License-Identifier: Apache-2.0

// Sums of all elements, and sums of squares. First a warp adds a block of 4096 elements, over all ranges of
// blocks in one launch. Lane l adds elements l, l + 32, ... in order. A butterfly then adds the lanes. This
// is the CPU's order. Each access has 4 bytes per lane. The 128 bytes of a warp are whole sectors and need no
// alignment, and each lane reads its own data. 16 of these accesses are in flight. Then one block adds the
// partial sums. Bytes: each element once (4 bytes per gradient). Bound: memory. Conversion and fused
// multiply-add in f64 take less time, even where f64 runs at 1/64 of f32's rate.
//
// Sums over one dimension. If the elements of a sum are contiguous, a warp adds a block of 4096 as above. If
// they are columns, a warp adds 64 rows of 32 neighbouring columns one after the other. Up to 16 such warps
// share a block of 1024 rows. A thread per column adds their sums in order. With fewer rows the warps of a
// thread block take further columns. A thread finishes a sum of several blocks in f64. Bytes: each element
// once, which is the bound.

#include <algorithm>
#include <cmath>

#include "lockstep/core/memory.h"
#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/cuda/device/pack.cuh"
#include "lockstep/kernels/cuda/device/reduce.cuh"
#include "lockstep/kernels/cuda/device/table.cuh"
#include "lockstep/kernels/sum.h"

namespace lockstep {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / cuda::warp_size;
constexpr int final_threads = 1024;

struct BlockRange {
  int64_t first;    ///< block of y
  int64_t x_first;  ///< the block of x that is squared
  uint32_t first_tile;
};

/// Ranges of blocks. A tile is a block.
struct Ranges {
  static constexpr int capacity = 1350;
  BlockRange ranges[capacity];
  int count = 0;
  uint32_t tiles = 0;
};
static_assert(sizeof(Ranges) + 32 <= cuda::parameter_bytes);

/// Returns the sum of term(i) over [0, size), added by the whole warp. The size is at most sum_block.
template <class S, class Term>
LOCKSTEP_DEVICE S sum_of_block(int size, Term term) {
  const int lane = cuda::lane_index();
  S sum = 0;
  int start = 0;
  constexpr int unrolled = 16;
  for (; start + unrolled * cuda::warp_size <= size; start += unrolled * cuda::warp_size) {
    float values[unrolled];
#pragma unroll
    for (int j = 0; j < unrolled; ++j) values[j] = term.load(start + j * cuda::warp_size + lane);
#pragma unroll
    for (int j = 0; j < unrolled; ++j) sum = term.add(sum, values[j]);
  }
  for (int i = start + lane; i < size; i += cuda::warp_size) sum = term.add(sum, term.load(i));
  return cuda::warp_sum(sum);
}

struct Square {
  const float* x;

  LOCKSTEP_DEVICE float load(int i) const { return __ldcs(x + i); }
  /// Adds a square. The product of two fp32 values is exact in f64, so fusing does not change the result.
  LOCKSTEP_DEVICE double add(double sum, float value) const {
    const double wide = value;
    return fma(wide, wide, sum);
  }
};

template <class T>
struct Identity {
  const T* x;

  LOCKSTEP_DEVICE float load(int i) const { return cuda::to_float(x[i]); }
  LOCKSTEP_DEVICE float add(float sum, float value) const { return sum + value; }
};

LOCKSTEP_DEVICE int size_of_block(int64_t size, int64_t block) {
  const int64_t rest = size - block * sum_block;
  return static_cast<int>(rest < sum_block ? rest : sum_block);
}

__global__ __launch_bounds__(threads) void square_kernel(const __grid_constant__ Ranges k, const float* x,
                                                         int64_t size, double* sums) {
  const uint32_t tile = blockIdx.x * warps + cuda::warp_index();
  if (tile >= k.tiles) return;
  const BlockRange& range = k.ranges[cuda::entry_of_tile(k.ranges, k.count, tile)];
  const uint32_t offset = tile - range.first_tile;
  const int64_t block = range.x_first + offset;
  const double sum = sum_of_block<double>(size_of_block(size, block), Square{x + block * sum_block});
  if (cuda::lane_index() == 0) sums[range.first + offset] = sum;
}

template <class T>
__global__ __launch_bounds__(threads) void sum_kernel(const T* x, int64_t size, int64_t blocks,
                                                      double* partials) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * warps + cuda::warp_index();
  if (block >= blocks) return;
  const float sum = sum_of_block<float>(size_of_block(size, block), Identity<T>{x + block * sum_block});
  if (cuda::lane_index() == 0) partials[block] = sum;
}

/// Returns the sum of the partials in thread 0. Their number alone decides the order of additions.
LOCKSTEP_DEVICE double sum_of_partials(const double* partials, int64_t count) {
  double sum = 0.0;
  for (int64_t i = threadIdx.x; i < count; i += final_threads) sum += partials[i];
  return cuda::block_sum<final_threads>(sum, cuda::dynamic_shared<double>());
}

template <class T>
__global__ __launch_bounds__(final_threads) void final_kernel(const double* partials, int64_t count, T* y) {
  const double sum = sum_of_partials(partials, count);
  if (threadIdx.x == 0) *y = cuda::from_float<T>(static_cast<float>(sum));
}

__global__ __launch_bounds__(final_threads) void clip_kernel(const double* squares, int64_t count,
                                                             double max_norm, const float* scaled_by,
                                                             double* norm, float* factor) {
  const double root = sqrt(sum_of_partials(squares, count));
  if (threadIdx.x != 0) return;
  const double scale = scaled_by ? *scaled_by : 1.0;
  *norm = root / scale;
  *factor = clip_factor(root / scale, max_norm, scale);
}

constexpr int column_warps = sum_block_rows / sum_rows;

template <class T>
struct Columns {
  const T* x;
  float* y;  ///< [outer, blocks, inner]
  int64_t count, inner, blocks;
  int64_t strips = 0;      ///< strips of 32 columns
  int64_t tasks = 0;       ///< outer * blocks * strips, each a strip of 32 columns of a block
  int warps_for_each = 1;  ///< warps that share a task, a power of two
};

template <class T>
__global__ __launch_bounds__(column_warps* cuda::warp_size) void column_kernel(Columns<T> k) {
  float* sums = cuda::dynamic_shared<float>();
  const int warp = cuda::warp_index();
  const int64_t task = (int64_t{blockIdx.x} * column_warps + warp) / k.warps_for_each;
  const int run = warp % k.warps_for_each;
  const int64_t column = task % k.strips * cuda::warp_size + cuda::lane_index();
  const int64_t block = task / k.strips % k.blocks, outer = task / k.strips / k.blocks;
  const bool is_inside = task < k.tasks && column < k.inner;
  const int64_t first = block * sum_block_rows + run * sum_rows;
  const int64_t left = min(k.count - first, sum_rows);
  float sum = 0.0f;
  if (is_inside) {
    const T* x = k.x + (outer * k.count + first) * k.inner + column;
#pragma unroll 8
    for (int row = 0; row < left; ++row) sum += cuda::to_float(x[row * k.inner]);
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (!is_inside || run != 0) return;
  const int64_t rows = min(k.count - block * sum_block_rows, sum_block_rows);
  float total = 0.0f;
  for (int other = 0; other * sum_rows < rows; ++other) total += sums[threadIdx.x + other * cuda::warp_size];
  k.y[(outer * k.blocks + block) * k.inner + column] = total;
}

/// Sums blocks of contiguous elements, one warp per block. y is [outer, blocks].
template <class T>
__global__ __launch_bounds__(threads) void row_kernel(const T* x, int64_t count, int64_t blocks,
                                                      int64_t tasks, float* y) {
  const int64_t task = int64_t{blockIdx.x} * warps + cuda::warp_index();
  if (task >= tasks) return;
  const int64_t block = task % blocks;
  const T* from = x + task / blocks * count + block * sum_block;
  const float sum = sum_of_block<float>(size_of_block(count, block), Identity<T>{from});
  if (cuda::lane_index() == 0) y[task] = sum;
}

/// Computes y[o, i] = the sum of partials[o, b, i] over b.
__global__ __launch_bounds__(threads) void finish_kernel(const float* partials, int64_t blocks, int64_t inner,
                                                         int64_t size, float* y) {
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= size) return;
  const float* terms = partials + i / inner * blocks * inner + i % inner;
  double sum = 0.0;
#pragma unroll 8
  for (int64_t block = 0; block < blocks; ++block) sum += terms[block * inner];
  y[i] = static_cast<float>(sum);
}

template <class T>
void sum_blocks(const CudaStream& stream, const DimensionSum& k, int64_t blocks, float* y) {
  const auto* x = static_cast<const T*>(k.x.data);
  if (k.inner == 1) {
    const int64_t tasks = k.outer() * blocks;
    return cuda::launch_grid(stream, {.blocks = cuda::blocks_for(tasks, warps), .threads = threads},
                             row_kernel<T>, x, k.count, blocks, tasks, y);
  }
  Columns<T> columns{.x = x, .y = y, .count = k.count, .inner = k.inner, .blocks = blocks};
  columns.strips = cuda::blocks_for(k.inner, cuda::warp_size);
  columns.tasks = k.outer() * blocks * columns.strips;
  while (columns.warps_for_each < column_warps && columns.warps_for_each * sum_rows < k.count)
    columns.warps_for_each *= 2;
  constexpr int block_threads = column_warps * cuda::warp_size;
  cuda::launch_grid(stream,
                    {.blocks = cuda::blocks_for(columns.tasks * columns.warps_for_each, column_warps),
                     .threads = block_threads,
                     .shared_bytes = block_threads * sizeof(float)},
                    column_kernel<T>, columns);
}

constexpr cuda::Grid one_block{
    .blocks = 1, .threads = final_threads, .shared_bytes = final_threads / cuda::warp_size * sizeof(double)};

int64_t count_blocks(const View& view) { return (view.size() + sum_block - 1) / sum_block; }

}  // namespace

void run(CudaStream stream, const Sum& k) {
  const int64_t blocks = count_blocks(k.x);
  const auto memory = allocate(blocks * static_cast<int64_t>(sizeof(double)), stream);
  auto* partials = reinterpret_cast<double*>(memory.get());
  cuda::with_device_type(k.x.dtype, [&]<class T>() {
    cuda::launch_grid(stream, {.blocks = cuda::blocks_for(blocks, warps), .threads = threads}, sum_kernel<T>,
                      static_cast<const T*>(k.x.data), k.x.size(), blocks, partials);
    cuda::launch_grid(stream, one_block, final_kernel<T>, static_cast<const double*>(partials), blocks,
                      static_cast<T*>(k.y.data));
  });
}

void run(CudaStream stream, const DimensionSum& k) {
  const int64_t block_rows = k.inner == 1 ? sum_block : sum_block_rows;
  const int64_t blocks = std::max<int64_t>(1, (k.count + block_rows - 1) / block_rows);
  const int64_t size = k.y.size();
  cuda::with_device_type(k.x.dtype, [&]<class T>() {
    if (blocks == 1) return sum_blocks<T>(stream, k, blocks, k.y.as<float>());
    const auto memory = allocate(size * blocks * static_cast<int64_t>(sizeof(float)), stream);
    auto* partials = reinterpret_cast<float*>(memory.get());
    sum_blocks<T>(stream, k, blocks, partials);
    cuda::launch_grid(stream, {.blocks = cuda::blocks_for(size, threads), .threads = threads}, finish_kernel,
                      static_cast<const float*>(partials), blocks, k.inner, size, k.y.as<float>());
  });
}

void run(CudaStream stream, const BlockSquares& k) {
  expect(k.x.dtype == DType::f32, "the squares of ", k.x.dtype, " run on the CPU only");
  Ranges table;
  const auto launch_table = [&] {
    cuda::launch_grid(stream, {.blocks = cuda::blocks_for(table.tiles, warps), .threads = threads},
                      square_kernel, table, k.x.as<float>(), k.x.size(), k.y.as<double>());
    table.count = 0;
    table.tiles = 0;
  };
  for (const BlockSquares::Blocks& blocks : k.ranges) {
    table.ranges[table.count++] = {blocks.first, blocks.first - blocks.shift, table.tiles};
    table.tiles += static_cast<uint32_t>(blocks.last - blocks.first);
    if (table.count == Ranges::capacity) launch_table();
  }
  launch_table();
}

void run(CudaStream stream, const ClipFactor& k) {
  cuda::launch_grid(stream, one_block, clip_kernel, k.squares.as<double>(), k.squares.size(), k.max_norm,
                    k.scale.as<float>(), k.norm.as<double>(), k.factor.as<float>());
}

}  // namespace lockstep
