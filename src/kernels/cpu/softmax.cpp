// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/softmax.h"

#include "lockstep/kernels/cpu/lanes.h"
#include "lockstep/kernels/cpu/map.h"
#include "lockstep/kernels/math.h"

namespace lockstep {
namespace {

template <class S>
void forward_row(const S* x, S* y, int64_t columns) {
  using T = Compute<S>;
  const T largest = lane_max<T>(columns, x);
  const auto exponential = [=](T value) { return math::exp(value - largest); };
  // Types of 32 bits and more keep the exponentials in y. Types of 16 bits would round them, so they are
  // computed again.
  constexpr bool keeps = std::same_as<S, T>;
  if (keeps) map_range<T>(0, columns, y, exponential, x);
  const S* from = keeps ? y : x;
  const auto kept = [=](T value) { return keeps ? value : exponential(value); };
  const T sum = lane_sum<T>(columns, [=](int64_t i) { return kept(static_cast<T>(from[i])); });
  map_range<T>(
      0, columns, y, [=](T value) { return kept(value) / sum; }, from);
}

template <class S>
void backward_row(const S* y, const S* dy, S* dx, int64_t columns) {
  using T = Compute<S>;
  const T shift =
      lane_sum<T>(columns, [=](int64_t i) { return static_cast<T>(y[i]) * static_cast<T>(dy[i]); });
  map_range<T>(
      0, columns, dx, [=](T value, T d) { return value * (d - shift); }, y, dy);
}

/// Calls body(offset of the row) for all rows. An exponential costs about as much as four additions.
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
  with_float_type(k.x.dtype, [&]<class S>() {
    for_each_row(stream, k.x.shape, [&, x = k.x.as<S>(), y = k.y.as<S>()](int64_t at) {
      forward_row(x + at, y + at, k.x.shape[-1]);
    });
  });
}

void run(CpuStream stream, const SoftmaxBackward& k) {
  with_float_type(k.y.dtype, [&]<class S>() {
    for_each_row(stream, k.y.shape, [&, y = k.y.as<S>(), dy = k.dy.as<S>(), dx = k.dx.as<S>()](int64_t at) {
      backward_row(y + at, dy + at, dx + at, k.y.shape[-1]);
    });
  });
}

}  // namespace lockstep
