// SPDX-License-Identifier: Apache-2.0

// Swaps two dimensions. If the last one is among them, a block moves a square tile through shared memory. So
// a warp accesses contiguous pieces of both arrays. A thread issues several loads before it needs one. Extra
// columns avoid bank conflicts. If the last one stays, runs of neighbours move as they are. A thread moves 16
// bytes, or one element if runs do not consist of such pieces. Bytes: both arrays once. Bound: memory.

#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/cuda/device/pack.cuh"
#include "lockstep/kernels/transpose.h"

namespace lockstep {
namespace {

/// The rows and columns of a tile. Rows in shared memory begin at `stride` words.
template <class Word>
constexpr int tile = sizeof(Word) == 2 ? 64 : 32;
template <class Word>
constexpr int stride = tile<Word> + (sizeof(Word) == 2 ? 2 : 1);
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

/// The number of tiles of a matrix, and of matrices that lie between each other.
struct Tiles {
  uint32_t below, across, between;
};

template <class Word>
__global__ void __launch_bounds__(tile_threads) tile_kernel(Problem<Word> k, Tiles tiles) {
  constexpr int size = tile<Word>, step = tile_threads / size;
  Word* shared = cuda::dynamic_shared<Word>();
  uint32_t rest = blockIdx.x;
  const int64_t column = int64_t{rest % tiles.across} * size;
  rest /= tiles.across;
  const int64_t row = int64_t{rest % tiles.below} * size;
  rest /= tiles.below;
  const int64_t middle = rest % tiles.between, outer = rest / tiles.between;
  const int x = static_cast<int>(threadIdx.x) % size, first = static_cast<int>(threadIdx.x) / size;
  const int rows = static_cast<int>(min(k.rows - row, int64_t{size}));
  const int columns = static_cast<int>(min(k.columns - column, int64_t{size}));

  const int64_t x_stride = k.between * k.columns;
  const Word* from = k.x + ((outer * k.rows + row + first) * k.between + middle) * k.columns + column + x;
#pragma unroll
  for (int i = 0; i < size; i += step, from += step * x_stride)
    if (i + first < rows && x < columns) shared[(i + first) * stride<Word> + x] = *from;
  __syncthreads();
  const int64_t y_stride = k.between * k.rows;
  Word* to = k.y + ((outer * k.columns + column + first) * k.between + middle) * k.rows + row + x;
#pragma unroll
  for (int i = 0; i < size; i += step, to += step * y_stride)
    if (i + first < columns && x < rows) *to = shared[x * stride<Word> + i + first];
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
  constexpr int size = tile<Word>;
  const Tiles tiles{.below = cuda::blocks_for(k.rows(), size),
                    .across = cuda::blocks_for(k.columns(), size),
                    .between = static_cast<uint32_t>(k.between())};
  cuda::launch_grid(stream,
                    {.blocks = static_cast<unsigned>(k.outer() * k.between() * tiles.below * tiles.across),
                     .threads = tile_threads,
                     .shared_bytes = size * stride<Word> * sizeof(Word)},
                    tile_kernel<Word>, problem_of<Word>(k), tiles);
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
