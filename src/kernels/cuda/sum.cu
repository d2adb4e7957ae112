// SPDX-License-Identifier: Apache-2.0

// First a warp per block of 4096 elements, over all ranges of blocks in one launch: lane l adds elements l, l
// + 32, ... in order, and a butterfly adds the lanes, which is the CPU's order. These accesses are of 4 bytes
// a lane: the 128 of a warp are whole sectors, need no alignment, and leave no data in another lane's hands;
// 16 of them are in flight. Then one block adds the partial sums. Read: each element once (4 bytes a
// gradient), the bound; conversion and fused multiply-add in f64 stay below it where f64 runs at 1/64 of
// f32's rate.

#include <cmath>

#include "core/memory.h"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/pack.cuh"
#include "kernels/cuda/device/reduce.cuh"
#include "kernels/cuda/device/table.cuh"
#include "kernels/sum.h"

namespace lockstep {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / cuda::warp_size;
constexpr int final_threads = 1024;

struct BlockRange {
  int64_t first;
  uint32_t first_tile;
};

/// Ranges of blocks; a tile is a block.
struct Ranges {
  static constexpr int capacity = 2000;
  BlockRange ranges[capacity];
  int count = 0;
  uint32_t tiles = 0;
};
static_assert(sizeof(Ranges) + 32 <= cuda::parameter_bytes);

/// The sum of term(i) over [0, size) by the whole warp, for size <= sum_block.
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
  /// The product of two fp32 is exact in f64, so fused or not is the same.
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
  const int64_t block = range.first + (tile - range.first_tile);
  const double sum = sum_of_block<double>(size_of_block(size, block), Square{x + block * sum_block});
  if (cuda::lane_index() == 0) sums[block] = sum;
}

template <class T>
__global__ __launch_bounds__(threads) void sum_kernel(const T* x, int64_t size, int64_t blocks,
                                                      double* partials) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * warps + cuda::warp_index();
  if (block >= blocks) return;
  const float sum = sum_of_block<float>(size_of_block(size, block), Identity<T>{x + block * sum_block});
  if (cuda::lane_index() == 0) partials[block] = sum;
}

/// The sum of the partials in thread 0, a function of their number and order alone.
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
                                                             double max_norm, double* norm, float* factor) {
  const double root = sqrt(sum_of_partials(squares, count));
  if (threadIdx.x != 0) return;
  *norm = root;
  *factor = clip_factor(root, max_norm);
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
    table.ranges[table.count++] = {blocks.first, table.tiles};
    table.tiles += static_cast<uint32_t>(blocks.last - blocks.first);
    if (table.count == Ranges::capacity) launch_table();
  }
  launch_table();
}

void run(CudaStream stream, const ClipFactor& k) {
  cuda::launch_grid(stream, one_block, clip_kernel, k.squares.as<double>(), k.squares.size(), k.max_norm,
                    k.norm.as<double>(), k.factor.as<float>());
}

}  // namespace lockstep
