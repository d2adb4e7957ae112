// SPDX-License-Identifier: Apache-2.0
// Operations on dimensions: sums, means, softmax and transpose().
#include "lockstep/kernels/softmax.h"
#include "lockstep/kernels/sum.h"
#include "lockstep/kernels/transpose.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/ops/broadcast.h"

namespace lockstep {
namespace {

Tensor times(const Tensor& x, double factor) { return factor == 1.0 ? x : scale(x, factor); }

/// Returns the sums or means over a dimension, rounded once.
Tensor reduced(const char* op, const Tensor& x, int dimension, bool keep_dimension, bool is_mean) {
  const OperationScope operation(op);
  const Shape& shape = x.shape();
  const int place = place_of(dimension, shape, op);
  Shape kept, dropped, ones{shape[place]};
  int64_t inner = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    kept.append(i == place ? 1 : shape[i]);
    if (i != place) dropped.append(shape[i]);
    if (i <= place) continue;
    inner *= shape[i];
    ones.append(1);
  }
  const Tensor sum = empty(kept, accumulator_dtype(x.dtype()), x.stream());
  launch(x.stream(), DimensionSum{.x = x.view(), .y = sum.view(), .count = shape[place], .inner = inner});
  // The mean over an empty dimension is 0 times infinity: NaN.
  const double factor = is_mean ? 1.0 / static_cast<double>(shape[place]) : 1.0;
  const Tensor y =
      record(op, convert(times(sum, factor), x.dtype()), {x}, [ones, factor](const Tensor& dy) -> Gradients {
        // A multiplication by ones repeats dy along the dimension.
        return {combined<Multiply>(times(dy, factor), full(ones, 1.0, dy.dtype(), dy.stream()))};
      });
  return keep_dimension ? y : y.reshape(dropped);
}

}  // namespace

Tensor sum(const Tensor& x, int dimension, bool keep_dimension) {
  return reduced("sum", x, dimension, keep_dimension, false);
}

Tensor mean(const Tensor& x, int dimension, bool keep_dimension) {
  return reduced("mean", x, dimension, keep_dimension, true);
}

Tensor transpose(const Tensor& x, int first, int second) {
  const OperationScope operation("transpose");
  const int a = place_of(first, x.shape(), "transpose"), b = place_of(second, x.shape(), "transpose");
  const int low = std::min(a, b), high = std::max(a, b);
  const Tensor y = empty(Transpose::swapped(x.shape(), low, high), x.dtype(), x.stream());
  launch(x.stream(), Transpose{.x = x.view(), .y = y.view(), .first = low, .second = high});
  return record("transpose", y, {x},
                [low, high](const Tensor& dy) -> Gradients { return {transpose(dy, low, high)}; });
}

Tensor softmax(const Tensor& x, int dimension) {
  const OperationScope operation("softmax");
  const int place = place_of(dimension, x.shape(), "softmax");
  if (place + 1 < x.shape().rank()) return transpose(softmax(transpose(x, place, -1)), place, -1);
  const Tensor y = empty_like(x);
  launch(x.stream(), SoftmaxForward{.x = x.view(), .y = y.view()});
  return record("softmax", y, {x}, [y = y.detach()](const Tensor& dy) -> Gradients {
    const Tensor dx = empty_like(y);
    launch(y.stream(), SoftmaxBackward{.y = y.view(), .dy = dy.view(), .dx = dx.view()});
    return {dx};
  });
}

}  // namespace lockstep
