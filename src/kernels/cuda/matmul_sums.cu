// SPDX-License-Identifier: Apache-2.0

// Sums of a matrix's columns in fp32. A block adds 256 rows of 32 groups of columns. A group has 16 bytes, or
// a single column if rows are no multiple of 16 bytes. Warp w adds rows w, w + 8, ... Then the warps' sums
// are added in order of warps. The blocks' sums are a matrix of 1/256 of the rows. The kernel runs again on
// that matrix until one row is left. The shape alone decides which terms are added in which order. Bytes: x
// once, and 1/128 of it (16 bits) for partial sums. Bound: memory.

#include "lockstep/core/memory.h"
#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/cuda/device/pack.cuh"
#include "lockstep/kernels/cuda/device/reduce.cuh"
#include "lockstep/kernels/matmul.h"

namespace lockstep {
namespace cuda {
namespace {

constexpr int warps = 8;
constexpr int threads = warps * warp_size;
constexpr int64_t rows_per_block = 256;

template <int width, class X>
__global__ void __launch_bounds__(threads)
    column_sum_kernel(int64_t rows, int64_t columns, const X* x, float* sums) {
  constexpr int tile = warp_size * width;
  const int lane = lane_index(), warp = warp_index();
  const int64_t first_column = int64_t{blockIdx.y} * tile;
  const int64_t column = first_column + lane * width;
  const int64_t begin = int64_t{blockIdx.x} * rows_per_block;
  const int64_t end = begin + rows_per_block < rows ? begin + rows_per_block : rows;
  float sum[width] = {};
  if (column < columns) {
#pragma unroll 8
    for (int64_t row = begin + warp; row < end; row += warps) {
      const Group<X, width> values = load_group<width>(x + row * columns + column);
#pragma unroll
      for (int i = 0; i < width; ++i) sum[i] += to_float(values.values[i]);
    }
  }
  float* of_warps = dynamic_shared<float>();  // [warps][width][warp_size]: a warp's accesses are neighbours
#pragma unroll
  for (int i = 0; i < width; ++i) of_warps[(warp * width + i) * warp_size + lane] = sum[i];
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t own = first_column + thread % warp_size * width + thread / warp_size;
  if (thread >= tile || own >= columns) return;
  float total = of_warps[thread];
#pragma unroll
  for (int w = 1; w < warps; ++w) total += of_warps[w * tile + thread];
  sums[blockIdx.x * columns + own] = total;
}

/// Runs one round: a row of sums for each block of rows.
template <class X>
void sum_blocks(const CudaStream& stream, int64_t rows, int64_t columns, const X* x, float* sums) {
  constexpr int pack = 16 / static_cast<int>(sizeof(X));
  static_assert(pack <= warps, "a thread writes at most one sum");
  const bool packed = columns % pack == 0 && is_aligned(x);
  const int width = packed ? pack : 1;
  launch_grid(stream,
              {.blocks = {blocks_for(rows, rows_per_block), blocks_for(columns, warp_size * width), 1},
               .threads = threads,
               .shared_bytes = sizeof(float) * threads * static_cast<size_t>(width)},
              packed ? column_sum_kernel<pack, X> : column_sum_kernel<1, X>, rows, columns, x, sums);
}

template <class X>
void sum_columns(const CudaStream& stream, int64_t rows, int64_t columns, const X* x, float* y) {
  const int64_t blocks = (rows + rows_per_block - 1) / rows_per_block;
  if (blocks == 1) return sum_blocks(stream, rows, columns, x, y);
  const auto partial = allocate(blocks * columns * int64_t{sizeof(float)}, stream);
  auto* sums = reinterpret_cast<float*>(partial.get());
  sum_blocks(stream, rows, columns, x, sums);
  sum_columns<float>(stream, blocks, columns, sums, y);
}

void set_to_zero(const CudaStream& stream, const View& y) {
  check(cudaMemsetAsync(y.data, 0, static_cast<size_t>(y.bytes()), native(stream)), "filling with zeros");
}

}  // namespace

}  // namespace cuda

void run(CudaStream stream, const ColumnSum& k) {
  const int64_t columns = k.y.size();
  if (columns == 0) return;
  if (k.x.size() == 0) return cuda::set_to_zero(stream, k.y);
  cuda::with_device_type(k.x.dtype, [&]<class X>() {
    cuda::sum_columns(stream, k.x.size() / columns, columns, static_cast<const X*>(k.x.data),
                      k.y.as<float>());
  });
}

}  // namespace lockstep
