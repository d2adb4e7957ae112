// SPDX-License-Identifier: Apache-2.0

// Swaps two dimensions. If the last one is among them, a block moves a tile of 32 x 32 elements through
// shared memory. So a warp accesses contiguous pieces of both arrays. An extra column per row avoids bank
// conflicts. If the last one stays, runs of neighbours move as they are. A thread moves 16 bytes, or one
// element if runs do not consist of such pieces. Bytes: both arrays once. Bound: memory.

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/pack.cuh"
#include "kernels/transpose.h"

namespace lockstep {
namespace {

constexpr int tile = 32;
constexpr int tile_threads = 256;
constexpr int run_threads = 256;

/// The arrays, counted in words. x is [outer, rows, between, columns, inner], and y is [outer, columns,
/// between, rows, inner].
template <class Word>
struct Problem {
  const Word* x;
  Word* y;
  int64_t rows, between, columns, inner;
  int64_t size;  ///< words of x
};

template <class Word>
__global__ void __launch_bounds__(tile_threads) tile_kernel(Problem<Word> k) {
  Word* shared = cuda::dynamic_shared<Word>();
  const int64_t tiles_below = (k.rows + tile - 1) / tile, tiles_across = (k.columns + tile - 1) / tile;
  int64_t rest = blockIdx.x;
  const int64_t column = rest % tiles_across * tile;
  rest /= tiles_across;
  const int64_t row = rest % tiles_below * tile;
  rest /= tiles_below;
  const int64_t middle = rest % k.between, outer = rest / k.between;
  const int x = static_cast<int>(threadIdx.x) % tile, first = static_cast<int>(threadIdx.x) / tile;
  constexpr int step = tile_threads / tile;
#pragma unroll
  for (int at = 0; at < tile; at += step) {
    const int i = at + first;
    if (row + i < k.rows && column + x < k.columns)
      shared[i * (tile + 1) + x] =
          k.x[((outer * k.rows + row + i) * k.between + middle) * k.columns + column + x];
  }
  __syncthreads();
#pragma unroll
  for (int at = 0; at < tile; at += step) {
    const int i = at + first;
    if (column + i < k.columns && row + x < k.rows)
      k.y[((outer * k.columns + column + i) * k.between + middle) * k.rows + row + x] =
          shared[x * (tile + 1) + i];
  }
}

template <class Word>
__global__ void __launch_bounds__(run_threads) run_kernel(Problem<Word> k) {
  const int64_t index = int64_t{blockIdx.x} * run_threads + threadIdx.x;
  if (index >= k.size) return;
  int64_t rest = index;  // of y
  const int64_t at = rest % k.inner;
  rest /= k.inner;
  const int64_t row = rest % k.rows;
  rest /= k.rows;
  const int64_t middle = rest % k.between;
  rest /= k.between;
  const int64_t column = rest % k.columns, outer = rest / k.columns;
  k.y[index] = k.x[(((outer * k.rows + row) * k.between + middle) * k.columns + column) * k.inner + at];
}

template <class Word>
Problem<Word> problem_of(const Transpose& k) {
  const int64_t words = static_cast<int64_t>(sizeof(Word)) / bytes(k.x.dtype);
  return {.x = static_cast<const Word*>(k.x.data),
          .y = static_cast<Word*>(k.y.data),
          .rows = k.rows(),
          .between = k.between(),
          .columns = k.columns(),
          .inner = k.inner() / words,
          .size = k.x.size() / words};
}

template <class Word>
void move_runs(const CudaStream& stream, const Transpose& k) {
  const Problem<Word> problem = problem_of<Word>(k);
  cuda::launch_grid(stream, {.blocks = cuda::blocks_for(problem.size, run_threads), .threads = run_threads},
                    run_kernel<Word>, problem);
}

template <class Word>
void transpose(const CudaStream& stream, const Transpose& k) {
  if (k.inner() > 1) return move_runs<Word>(stream, k);
  const int64_t tiles = int64_t{cuda::blocks_for(k.rows(), tile)} * cuda::blocks_for(k.columns(), tile);
  cuda::launch_grid(stream,
                    {.blocks = static_cast<unsigned>(k.outer() * k.between() * tiles),
                     .threads = tile_threads,
                     .shared_bytes = tile * (tile + 1) * sizeof(Word)},
                    tile_kernel<Word>, problem_of<Word>(k));
}

}  // namespace

void run(CudaStream stream, const Transpose& k) {
  if (k.x.size() == 0) return;
  const int64_t run_bytes = k.inner() * bytes(k.x.dtype);
  if (run_bytes % 16 == 0 && cuda::is_aligned(k.x.data, k.y.data)) return move_runs<uint4>(stream, k);
  switch (bytes(k.x.dtype)) {
    case 2:
      return transpose<uint16_t>(stream, k);
    case 4:
      return transpose<uint32_t>(stream, k);
    default:
      return transpose<uint64_t>(stream, k);
  }
}

}  // namespace lockstep
