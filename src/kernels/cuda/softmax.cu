// SPDX-License-Identifier: Apache-2.0

// Softmax of rows. Up to 2048 columns a warp owns a row, otherwise 512 threads do. The shape alone decides
// which thread adds which elements (softmax_row.cuh). A row is read twice, the second time from the caches.
// The forward computes the maximum and the sum in one pass (Milakov & Gimelshein 2018), then the quotients.
// Bytes: x and y once in the forward, y, dy and dx once in the backward. Bound: memory.

#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/cuda/softmax_row.cuh"
#include "lockstep/kernels/softmax.h"

namespace lockstep {
namespace {

using cuda::load_values, cuda::store_values;

template <class T>
struct Problem {
  const T *x, *dy;  ///< in the backward, x is the forward's output
  T* y;             ///< in the backward, the gradient of its input
  int64_t rows;
  int columns;
  bool aligned;  ///< whether packed rows can be moved in pieces
};

template <class L>
constexpr int rows_per_block = L::threads == 32 ? 8 : 1;
template <class L>
constexpr int block_threads = rows_per_block<L>* L::threads;

template <class L>
LOCKSTEP_DEVICE int64_t row_index() {
  return int64_t{blockIdx.x} * rows_per_block<L> + threadIdx.x / L::threads;
}

template <class L>
__global__ void __launch_bounds__(block_threads<L>, 2) forward_kernel(Problem<typename L::T> k) {
  const int64_t row = row_index<L>();
  if (row >= k.rows) return;
  const auto* x = k.x + row * k.columns;
  const int groups = L::groups(k.columns);
  cuda::Softmax seen;
  typename L::Group values;
  for (int group = 0; group < groups; ++group) {
    load_values<L>(values, x, group, k.columns, k.aligned);
    seen.add(values);
  }
  seen = cuda::join_row<L::threads>(seen, cuda::dynamic_shared<float>());
  const float factor = 1.0f / seen.sum;
  for (int group = 0; group < groups; ++group) {
    load_values<L>(values, x, group, k.columns, k.aligned);
#pragma unroll
    for (int i = 0; i < L::width; ++i) values[i] = cuda::fast_exp(values[i] - seen.largest) * factor;
    store_values<L>(k.y + row * k.columns, values, group, k.columns, k.aligned);
  }
}

template <class L>
__global__ void __launch_bounds__(block_threads<L>, L::threads == 32 ? 2 : 1)
    backward_kernel(Problem<typename L::T> k) {
  const int64_t row = row_index<L>();
  if (row >= k.rows) return;
  const auto *y = k.x + row * k.columns, *dy = k.dy + row * k.columns;
  const int groups = L::groups(k.columns);
  typename L::Group values, gradient;
  float shift = 0.0f;
  for (int group = 0; group < groups; ++group) {
    load_values<L>(values, y, group, k.columns, k.aligned);
    load_values<L>(gradient, dy, group, k.columns, k.aligned);
#pragma unroll
    for (int i = 0; i < L::width; ++i)
      if (L::column(group, i) < k.columns) shift += values[i] * gradient[i];
  }
  if constexpr (L::threads == 32)
    shift = cuda::warp_sum(shift);
  else
    shift = cuda::block_sum<L::threads>(shift, cuda::dynamic_shared<float>());
  for (int group = 0; group < groups; ++group) {
    load_values<L>(values, y, group, k.columns, k.aligned);
    load_values<L>(gradient, dy, group, k.columns, k.aligned);
#pragma unroll
    for (int i = 0; i < L::width; ++i) values[i] *= gradient[i] - shift;
    store_values<L>(k.y + row * k.columns, values, group, k.columns, k.aligned);
  }
}

/// Calls body.operator()<Layout>() with the layout for rows of `columns` columns.
template <class T, class Body>
void with_layout(int64_t columns, Body&& body) {
  const bool packed = columns % cuda::Pack<T>::size == 0;
  if (columns <= 2048)
    packed ? body.template operator()<cuda::SoftmaxLayout<T, 32, true>>()
           : body.template operator()<cuda::SoftmaxLayout<T, 32, false>>();
  else
    packed ? body.template operator()<cuda::SoftmaxLayout<T, 512, true>>()
           : body.template operator()<cuda::SoftmaxLayout<T, 512, false>>();
}

void launch_rows(const CudaStream& stream, const View& x, const View& dy, const View& y) {
  const int64_t columns = x.shape[-1];
  expect(columns <= 1 << 30, columns, " columns are too many for a GPU");
  if (x.size() == 0) return;
  cuda::with_device_type(x.dtype, [&]<class T>() {
    const Problem<T> problem{.x = static_cast<const T*>(x.data),
                             .dy = static_cast<const T*>(dy.data),
                             .y = static_cast<T*>(y.data),
                             .rows = x.shape.rows(),
                             .columns = static_cast<int>(columns),
                             .aligned = cuda::is_aligned(x.data, dy.data, y.data)};
    with_layout<T>(columns, [&]<class L>() {
      cuda::launch_grid(stream,
                        {.blocks = cuda::blocks_for(problem.rows, rows_per_block<L>),
                         .threads = block_threads<L>,
                         .shared_bytes = 2 * L::threads / 32 * sizeof(float)},
                        dy ? backward_kernel<L> : forward_kernel<L>, problem);
    });
  });
}

}  // namespace

void run(CudaStream stream, const SoftmaxForward& k) { launch_rows(stream, k.x, {}, k.y); }
void run(CudaStream stream, const SoftmaxBackward& k) { launch_rows(stream, k.y, k.dy, k.dx); }

}  // namespace lockstep
