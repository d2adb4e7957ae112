// SPDX-License-Identifier: Apache-2.0
#include "kernels/softmax.h"

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/map.h"
#include "kernels/cpu/math.h"

namespace lockstep {
namespace {

template <class T>
void forward_row(const T* x, T* y, int64_t columns) {
  const T largest = lane_max(columns, x);
  map_range<T>(
      0, columns, y, [=](T value) { return math::exp(value - largest); }, x);
  const T sum = lane_sum<T>(columns, [=](int64_t i) { return y[i]; });
  map_range<T>(
      0, columns, y, [=](T exponential) { return exponential / sum; }, y);
}

template <class T>
void backward_row(const T* y, const T* dy, T* dx, int64_t columns) {
  const T shift = lane_sum<T>(columns, [=](int64_t i) { return y[i] * dy[i]; });
  map_range<T>(
      0, columns, dx, [=](T value, T d) { return value * (d - shift); }, y, dy);
}

/// Calls body(the offset of a row) for all rows. An exponential costs about what four additions do.
template <class Body>
void for_each_row(const CpuStream& stream, const Shape& shape, Body body) {
  const int64_t columns = shape[-1];
  const int64_t grain = elementwise_grain / 4 / std::max<int64_t>(1, columns);
  stream.for_each_chunk(shape.rows(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row * columns);
  });
}

}  // namespace

void run(CpuStream stream, const SoftmaxForward& k) {
  with_compute_type(k.x.dtype, [&]<class T>() {
    for_each_row(stream, k.x.shape, [&, x = k.x.as<T>(), y = k.y.as<T>()](int64_t at) {
      forward_row(x + at, y + at, k.x.shape[-1]);
    });
  });
}

void run(CpuStream stream, const SoftmaxBackward& k) {
  with_compute_type(k.y.dtype, [&]<class T>() {
    for_each_row(stream, k.y.shape, [&, y = k.y.as<T>(), dy = k.dy.as<T>(), dx = k.dx.as<T>()](int64_t at) {
      backward_row(y + at, dy + at, dx + at, k.y.shape[-1]);
    });
  });
}

}  // namespace lockstep
