// SPDX-License-Identifier: Apache-2.0

// Many small products, such as those of attention written by hand. A block makes 64 x 64 elements of one
// product. A thread makes 4 x 4 of them, 16 apart in both directions. Slices of 16 of k pass through shared
// memory, whose rows of 65 floats avoid bank conflicts. An element is one chain of fused multiply-adds per
// 256 of k, and blocks of k are added in order. This is the CPU's order, in fp32 for every dtype and without
// tensor cores, so every GPU gives the same bits. Operations: 2 m n k. Bound: shared memory, with eight loads
// for sixteen multiply-adds. Products from `least_large_product` on run as MatMul, one after the other. They
// fill a GPU and have MatMul's plans.

#include <algorithm>

#include "lockstep/kernels/batched_matmul.h"
#include "lockstep/kernels/cuda/device/dtype.cuh"
#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/matmul.h"

namespace lockstep {
namespace {

constexpr int64_t least_large_product = int64_t{1} << 27;
constexpr int tile = 64;
constexpr int slice = 16;
constexpr int depth_block = 256;
constexpr int threads = 256;
constexpr int across = 16;           // threads per row of the tile
constexpr int each = tile / across;  // elements per thread in a row or column
constexpr int stride = tile + 1;
constexpr size_t shared_bytes = 2 * slice * stride * sizeof(float);

/// One operand. Lanes are rows of op(a) or columns of op(b). Small products fit in 32 bits.
template <class T>
struct Operand {
  const T* data;
  int lanes, depth;
  bool depth_is_contiguous;
  int64_t stride_inner, stride_outer;  ///< in matrices, along the dimensions of the batch
};

template <class T, class C>
struct Problem {
  Operand<T> a, b;
  C* c;
  int64_t inner_batch;  ///< the batch is [outer, inner]
  int tiles_across, tiles_of_one;
};

/// Loads slice x tile elements of a matrix into shared memory. Elements beyond its end become zeros.
template <class T>
LOCKSTEP_DEVICE void load_slice(float* shared, const Operand<T>& from, const T* matrix, int first_lane,
                                int first_depth) {
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < tile * slice / threads; ++i) {
    const int lane = from.depth_is_contiguous ? thread / slice + i * (threads / slice) : thread % tile;
    const int depth = from.depth_is_contiguous ? thread % slice : thread / tile + i * (threads / tile);
    const int at_lane = first_lane + lane, at_depth = first_depth + depth;
    float value = 0.0f;
    if (at_lane < from.lanes && at_depth < from.depth)
      value = cuda::to_float(matrix[from.depth_is_contiguous ? at_lane * from.depth + at_depth
                                                             : at_depth * from.lanes + at_lane]);
    shared[depth * stride + lane] = value;
  }
}

template <class T>
LOCKSTEP_DEVICE const T* matrix_of(const Operand<T>& operand, int64_t number, int64_t inner_batch) {
  const int64_t outer = number / inner_batch, inner = number % inner_batch;
  return operand.data +
         (outer * operand.stride_outer + inner * operand.stride_inner) * (operand.lanes * operand.depth);
}

template <class T, class C>
__global__ void __launch_bounds__(threads, 2) product_kernel(Problem<T, C> k) {
  float* left = cuda::dynamic_shared<float>();
  float* right = left + slice * stride;
  const int block = static_cast<int>(blockIdx.x);
  const int number = block / k.tiles_of_one, place = block % k.tiles_of_one;
  const int first_row = place / k.tiles_across * tile, first_column = place % k.tiles_across * tile;
  const T* a = matrix_of(k.a, number, k.inner_batch);
  const T* b = matrix_of(k.b, number, k.inner_batch);
  const int row = static_cast<int>(threadIdx.x) / across, column = static_cast<int>(threadIdx.x) % across;
  float total[each][each] = {}, sum[each][each] = {};
  for (int begin = 0; begin < k.a.depth; begin += slice) {
    load_slice(left, k.a, a, first_row, begin);
    load_slice(right, k.b, b, first_column, begin);
    __syncthreads();
    const int steps = min(slice, k.a.depth - begin);
#pragma unroll 4
    for (int d = 0; d < steps; ++d)
#pragma unroll
      for (int i = 0; i < each; ++i)
#pragma unroll
        for (int j = 0; j < each; ++j)
          sum[i][j] =
              fmaf(left[d * stride + row + i * across], right[d * stride + column + j * across], sum[i][j]);
    __syncthreads();
    if ((begin + slice) % depth_block != 0 && begin + slice < k.a.depth) continue;
#pragma unroll
    for (int i = 0; i < each; ++i)
#pragma unroll
      for (int j = 0; j < each; ++j) {
        total[i][j] = begin < depth_block ? sum[i][j] : total[i][j] + sum[i][j];
        sum[i][j] = 0.0f;
      }
  }
  C* c = k.c + int64_t{number} * (k.a.lanes * k.b.lanes);
#pragma unroll
  for (int i = 0; i < each; ++i)
#pragma unroll
    for (int j = 0; j < each; ++j) {
      const int to_row = first_row + row + i * across, to_column = first_column + column + j * across;
      if (to_row < k.a.lanes && to_column < k.b.lanes)
        c[to_row * k.b.lanes + to_column] = cuda::from_float<C>(total[i][j]);
    }
}

template <class T, class C>
void launch_products(const CudaStream& stream, const BatchedMatMul& k) {
  const BroadcastPlan<2> plan = k.plan();
  const auto operand = [&](const View& view, int64_t lanes, bool depth_is_contiguous,
                           const BroadcastPlan<2>::Numbers& strides) {
    return Operand<T>{.data = static_cast<const T*>(view.data),
                      .lanes = static_cast<int>(lanes),
                      .depth = static_cast<int>(k.k()),
                      .depth_is_contiguous = depth_is_contiguous,
                      .stride_inner = strides[0],
                      .stride_outer = strides[1]};
  };
  const auto tiles_across = static_cast<int>(cuda::blocks_for(k.n(), tile));
  const Problem<T, C> problem{.a = operand(k.a, k.m(), !k.transpose_a, plan.strides[0]),
                              .b = operand(k.b, k.n(), k.transpose_b, plan.strides[1]),
                              .c = static_cast<C*>(k.c.data),
                              .inner_batch = plan.extents[0],
                              .tiles_across = tiles_across,
                              .tiles_of_one = tiles_across * static_cast<int>(cuda::blocks_for(k.m(), tile))};
  const int64_t blocks = k.batch() * problem.tiles_of_one;
  expect(blocks < int64_t{1} << 31, "matmul: a is ", k.a.shape, ", b is ", k.b.shape,
         ": too many products for one launch");
  cuda::launch_grid(
      stream, {.blocks = static_cast<unsigned>(blocks), .threads = threads, .shared_bytes = shared_bytes},
      product_kernel<T, C>, problem);
}

}  // namespace

void run(CudaStream stream, const BatchedMatMul& k) {
  if (k.c.size() == 0) return;
  if (k.m() * k.n() * std::max<int64_t>(1, k.k()) >= least_large_product) {
    const BroadcastPlan<2> plan = k.plan();
    for (int64_t number = 0; number < k.batch(); ++number)
      run(stream, MatMul{.a = k.matrix(k.a, plan.place(0, number)),
                         .b = k.matrix(k.b, plan.place(1, number)),
                         .c = k.matrix(k.c, number),
                         .transpose_a = k.transpose_a,
                         .transpose_b = k.transpose_b});
    return;
  }
  cuda::with_device_type(k.a.dtype, [&]<class T>() {
    k.c.dtype == DType::f32 ? launch_products<T, float>(stream, k) : launch_products<T, T>(stream, k);
  });
}

}  // namespace lockstep
