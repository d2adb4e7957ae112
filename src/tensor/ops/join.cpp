// SPDX-License-Identifier: Apache-2.0
// Operations that cut and join dimensions: slice(), cat(), stack() and chunk().
#include "lockstep/kernels/copy_rows.h"
#include "lockstep/tensor/ops/broadcast.h"

namespace lockstep {
namespace {

/// A part of a dimension. The array is [rows, extent, inner].
struct Part {
  int64_t rows = 1, inner = 1;

  Part(const Shape& shape, int dimension) {
    for (int i = 0; i < shape.rank(); ++i)
      if (i != dimension) (i < dimension ? rows : inner) *= shape[i];
  }
  /// Copies `count` elements of the dimension, from `from` on in x and `to` on in y.
  void copy(const Tensor& x, int64_t x_extent, int64_t from, const Tensor& y, int64_t y_extent, int64_t to,
            int64_t count) const {
    const auto after = [&](const Tensor& tensor, int64_t first) {
      View view = tensor.view();
      if (view.data != nullptr)
        view.data = static_cast<std::byte*>(view.data) + first * inner * bytes(view.dtype);
      view.shape = {tensor.size() - first * inner};
      return view;
    };
    if (rows * inner * count == 0) return;
    launch(y.stream(), CopyRows{.x = after(x, from),
                                .y = after(y, to),
                                .rows = rows,
                                .length = count * inner,
                                .x_stride = x_extent * inner,
                                .y_stride = y_extent * inner});
  }
};

Shape with_extent(const Shape& shape, int dimension, int64_t extent) {
  Shape result;
  for (int i = 0; i < shape.rank(); ++i) result.append(i == dimension ? extent : shape[i]);
  return result;
}

/// Returns the part [begin, begin + count) of a dimension off the tape.
Tensor cut(const Tensor& x, int dimension, int64_t begin, int64_t count) {
  const int64_t extent = x.shape()[dimension];
  const Tensor y = empty(with_extent(x.shape(), dimension, count), x.dtype(), x.stream());
  Part(x.shape(), dimension).copy(x, extent, begin, y, count, 0, count);
  return y;
}

}  // namespace

Tensor slice(const Tensor& given, int dimension, int64_t begin, int64_t end) {
  const OperationScope operation("slice");
  const Tensor x = computed(given);
  const int place = place_of(dimension, x.shape(), "slice");
  const int64_t extent = x.shape()[place];
  const int64_t first = begin < 0 ? begin + extent : begin, last = end < 0 ? end + extent : end;
  expect(0 <= first && first <= last && last <= extent, "x is ", x.shape(), "; dimension ", dimension,
         " has no elements [", begin, ", ", end, ")");
  return record("slice", cut(x, place, first, last - first), {x},
                [shape = x.shape(), place, first, count = last - first](
                    const Tensor& dy, GradientContext& context) -> Gradients {
                  // Slices of one tensor add to one gradient. So a loop over slices moves each element once.
                  const Tensor dx = context.take_own_gradient(0, shape, dy);
                  const Tensor sum = combined<Add>(cut(dx, place, first, count), dy);
                  Part(shape, place).copy(sum, count, 0, dx, shape[place], first, count);
                  return {dx};
                });
}

Tensor cat(const std::vector<Tensor>& given, int dimension) {
  const OperationScope operation("cat");
  expect(!given.empty(), "there is no tensor to join");
  std::vector<Tensor> tensors;
  for (const Tensor& tensor : given) tensors.push_back(computed(tensor));
  const Tensor& model = tensors.front();
  const int place = place_of(dimension, model.shape(), "cat");
  std::vector<int64_t> counts;
  int64_t extent = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Shape& shape = tensors[i].shape();
    expect(shape.rank() == model.shape().rank() &&
               with_extent(shape, place, 0) == with_extent(model.shape(), place, 0),
           "tensor 0 is ", model.shape(), ", tensor ", i, " is ", shape, "; only dimension ", dimension,
           " may differ");
    common_dtype(model, tensors[i], "cat");
    counts.push_back(shape[place]);
    extent += shape[place];
  }
  const Tensor y = empty(with_extent(model.shape(), place, extent), model.dtype(), model.stream());
  const Part part(model.shape(), place);
  int64_t first = 0;
  for (size_t i = 0; i < tensors.size(); first += counts[i++])
    part.copy(tensors[i], counts[i], 0, y, extent, first, counts[i]);
  return record("cat", y, tensors, [counts, place](const Tensor& dy, GradientContext& context) -> Gradients {
    Gradients gradients;
    int64_t begin = 0;
    for (size_t i = 0; i < counts.size(); begin += counts[i++])
      gradients.push_back(context.wants(i) ? cut(dy, place, begin, counts[i]) : Tensor());
    return gradients;
  });
}

Tensor stack(const std::vector<Tensor>& tensors, int dimension) {
  const OperationScope operation("stack");
  expect(!tensors.empty(), "there is no tensor to join");
  const Shape& shape = tensors.front().shape();
  Shape widened = shape;
  widened.append(1);  // throws Error if there are too many dimensions
  const int place = place_of(dimension, widened, "stack");
  Shape with_one;
  for (int i = 0; i <= shape.rank(); ++i) with_one.append(i == place ? 1 : shape[i < place ? i : i - 1]);
  std::vector<Tensor> parts;
  for (size_t i = 0; i < tensors.size(); ++i) {
    expect(tensors[i].shape() == shape, "tensor 0 is ", shape, ", tensor ", i, " is ", tensors[i].shape(),
           "; equal shapes are needed");
    parts.push_back(tensors[i].reshape(with_one));
  }
  return cat(parts, place);
}

std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int dimension) {
  const OperationScope operation("chunk");
  const int64_t extent = x.shape()[place_of(dimension, x.shape(), "chunk")];
  expect(chunks > 0, chunks, " parts are asked for");
  const int64_t size = (extent + chunks - 1) / chunks;
  std::vector<Tensor> parts;
  for (int64_t begin = 0; begin < extent; begin += size)
    parts.push_back(slice(x, dimension, begin, std::min(begin + size, extent)));
  if (parts.empty()) parts.push_back(slice(x, dimension, 0, 0));
  return parts;
}

}  // namespace lockstep
