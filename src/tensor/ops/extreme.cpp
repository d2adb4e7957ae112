// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/extreme.h"

#include "lockstep/tensor/ops/broadcast.h"

namespace lockstep {
namespace {

/// The values along a dimension, as a kernel sees them, and the shapes of its result.
struct Along {
  int64_t count = 1, inner = 1;
  Shape kept, dropped;  ///< with the dimension as 1 and without it

  Along(const char* op, const Tensor& x, int dimension) {
    const int place = place_of(dimension, x.shape(), op);
    for (int i = 0; i < x.shape().rank(); ++i) {
      kept.append(i == place ? 1 : x.shape()[i]);
      if (i != place) dropped.append(x.shape()[i]);
      if (i > place) inner *= x.shape()[i];
    }
    count = x.shape()[place];
    expect(count > 0, "x is ", x.shape(), "; dimension ", dimension, " has no element");
  }

  /// Finds the extreme values and their places. An empty tensor is not computed.
  void find(const Tensor& x, Extreme extreme, const Tensor& y, const Tensor& places) const {
    if (kept.elements() == 0) return;
    launch(x.stream(), DimensionExtreme{.extreme = extreme,
                                        .x = x.view(),
                                        .y = y.view(),
                                        .places = places.view(),
                                        .count = count,
                                        .inner = inner});
  }
};

Tensor extreme_along(const char* op, Extreme extreme, const Tensor& given, int dimension,
                     bool keep_dimension) {
  const OperationScope operation(op);
  const Tensor x = computed(given);
  const Along along(op, x, dimension);
  const Tensor y = empty(keep_dimension ? along.kept : along.dropped, x.dtype(), x.stream());
  const bool is_needed = is_recorded({x});
  const Tensor places = is_needed ? empty(y.shape(), DType::i32, x.stream()) : Tensor();
  along.find(x, extreme, y, places);
  return record(op, y, {x}, [along, places, shape = x.shape()](const Tensor& dy) -> Gradients {
    const Tensor dx = empty(shape, dy.dtype(), dy.stream());
    if (dx.size() > 0)
      launch(dy.stream(), ExtremeBackward{.dy = dy.view(),
                                          .places = places.view(),
                                          .dx = dx.view(),
                                          .count = along.count,
                                          .inner = along.inner});
    return {dx};
  });
}

Tensor place_along(const char* op, Extreme extreme, const Tensor& given, int dimension, bool keep_dimension) {
  const OperationScope operation(op);
  const Tensor x = computed(given);
  const Along along(op, x, dimension);
  const Tensor places = empty(keep_dimension ? along.kept : along.dropped, DType::i32, x.stream());
  along.find(x, extreme, {}, places);
  return places;
}

/// Returns the extreme of all elements, off the tape. Rows are reduced first, so that threads share the work.
Tensor extreme_of_all(const Tensor& x, Extreme extreme) {
  constexpr int64_t row = 4096;
  const NoGrad no_grad;
  const Tensor flat = x.detach().reshape({x.size()});
  const auto last = [&](const Tensor& values) {
    const Tensor y = empty({}, x.dtype(), x.stream());
    Along("max", values, 0).find(values, extreme, y, {});
    return y;
  };
  if (x.size() < 2 * row) return last(flat);
  const int64_t rows = x.size() / row, rest = x.size() - rows * row;
  const Tensor parts = empty({rows + (rest > 0)}, x.dtype(), x.stream());
  const Tensor whole = flat.slice(0, rows * row).reshape({rows, row});
  Along("max", whole, 1).find(whole, extreme, parts.slice(0, rows), {});
  if (rest > 0) {
    const Tensor tail = flat.slice(rows * row, x.size());
    Along("max", tail, 0).find(tail, extreme, parts.slice(rows, rows + 1), {});
  }
  return last(parts);
}

Tensor extreme_element(const char* op, Extreme extreme, const Tensor& given) {
  const OperationScope operation(op);
  const Tensor x = computed(given);
  expect(x.size() > 0, "x is ", x.shape(), " and has no element");
  const Tensor y = extreme_of_all(x, extreme);
  return record(op, y, {x}, [x = x.detach(), y = y.detach()](const Tensor& dy) -> Gradients {
    const NoGrad no_grad;
    // A NaN equals no number. So the extreme elements are those that are not different from y, or are NaN
    // as y is.
    const Tensor is_nan = multiply(not_equal(x, x), not_equal(y, y));
    const Tensor is_extreme = maximum(equal(x, y), is_nan);
    const Tensor count = sum(convert(is_extreme, accumulator_dtype(x.dtype())));
    const Tensor share = divide(convert(dy, count.dtype()), count);
    return {where(is_extreme, convert(share, dy.dtype()), 0.0)};
  });
}

}  // namespace

Tensor max(const Tensor& x) { return extreme_element("max", Extreme::largest, x); }
Tensor min(const Tensor& x) { return extreme_element("min", Extreme::smallest, x); }
Tensor max(const Tensor& x, int dimension, bool keep_dimension) {
  return extreme_along("max", Extreme::largest, x, dimension, keep_dimension);
}
Tensor min(const Tensor& x, int dimension, bool keep_dimension) {
  return extreme_along("min", Extreme::smallest, x, dimension, keep_dimension);
}
Tensor argmax(const Tensor& x, int dimension, bool keep_dimension) {
  return place_along("argmax", Extreme::largest, x, dimension, keep_dimension);
}
Tensor argmin(const Tensor& x, int dimension, bool keep_dimension) {
  return place_along("argmin", Extreme::smallest, x, dimension, keep_dimension);
}

}  // namespace lockstep
