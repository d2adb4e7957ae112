// SPDX-License-Identifier: Apache-2.0
#include "tensor/tensor.h"

#include "tensor/create.h"
#include "tensor/tensor_state.h"

namespace lockstep {

Tensor::Tensor(std::shared_ptr<Storage> storage, int64_t offset_bytes, Shape shape, DType dtype)
    : state_(std::make_shared<TensorState>()) {
  const int64_t end = offset_bytes + shape.elements() * bytes(dtype);
  expect(storage != nullptr && offset_bytes >= 0 && end <= storage->bytes, "a tensor ", shape, " of ", dtype,
         " at byte ", offset_bytes, " does not fit its storage of ", storage ? storage->bytes : 0, " bytes");
  state_->storage = std::move(storage);
  state_->offset_bytes = offset_bytes;
  state_->shape = shape;
  state_->dtype = dtype;
}

const Shape& Tensor::shape() const {
  expect(state_ != nullptr, "the shape of an empty tensor");
  return state_->shape;
}

DType Tensor::dtype() const {
  expect(state_ != nullptr, "the dtype of an empty tensor");
  return state_->dtype;
}

const Stream& Tensor::stream() const {
  expect(state_ != nullptr, "the stream of an empty tensor");
  return state_->storage->stream;
}

View Tensor::view() const {
  if (!state_) return {};
  return {state_->storage->data.get() + state_->offset_bytes, state_->shape, state_->dtype};
}

Tensor Tensor::reshape(Shape new_shape) const {
  expect(new_shape.elements() == size(), "cannot reshape ", shape(), " to ", new_shape);
  const Tensor y(state_->storage, state_->offset_bytes, new_shape, dtype());
  return record("reshape", y, {*this},
                [old_shape = shape()](const Tensor& dy) -> Gradients { return {dy.reshape(old_shape)}; });
}

Tensor Tensor::reshape(std::initializer_list<int64_t> extents) const {
  int64_t known = 1;
  for (int64_t extent : extents)
    if (extent != -1) known *= extent;
  Shape resolved;
  for (int64_t extent : extents) {
    expect(extent != -1 || (known > 0 && size() % known == 0), "cannot infer a dimension of ", shape());
    resolved.append(extent == -1 ? size() / known : extent);
  }
  return reshape(resolved);
}

Tensor Tensor::slice(int64_t begin, int64_t end) const {
  expect(shape().rank() > 0 && 0 <= begin && begin <= end && end <= shape()[0], "rows [", begin, ", ", end,
         ") of ", shape());
  const int64_t row_bytes = shape()[0] == 0 ? 0 : view().bytes() / shape()[0];
  Shape rows{end - begin};
  for (int i = 1; i < shape().rank(); ++i) rows.append(shape()[i]);
  const Tensor y(state_->storage, state_->offset_bytes + begin * row_bytes, rows, dtype());
  return record("slice", y, {*this}, [all = shape(), begin, end](const Tensor& dy) -> Gradients {
    const Tensor dx = full(all, 0.0, dy.dtype(), dy.stream());
    copy(dy, dx.slice(begin, end));
    return {dx};
  });
}

Tensor Tensor::detach() const {
  if (!state_) return {};
  Tensor same(state_->storage, state_->offset_bytes, state_->shape, state_->dtype);
  same.state_->space = state_->space;
  same.state_->place = state_->place;
  return same;
}

Tensor& Tensor::set_requires_grad(bool on) {
  expect(state_ != nullptr && !state_->node, "only a leaf can be told to require a gradient");
  if (on && !state_->leaf) state_->leaf = std::make_unique<LeafGradient>();
  if (!on) state_->leaf.reset();
  return *this;
}

bool Tensor::requires_grad() const { return state_ && state_->wants_gradient(); }

Tensor Tensor::grad() const {
  if (!state_ || !state_->leaf || !state_->leaf->is_written) return {};
  expect(!state_->space || state_->space->gradients_are_whole,
         "each rank holds the gradients of what it updates: call DataParallel::gather_gradients() for all");
  return state_->leaf->buffer;
}

View Tensor::operand(DType wanted) const {
  if (!state_ || dtype() == wanted) return view();
  expect(compute_dtype() == wanted, "a parameter in ", dtype(), " has no copy in ", wanted,
         ", which this operation computes in");
  const View copies = state_->space->copies.view();
  return {static_cast<std::byte*>(copies.data) + state_->place * bytes(wanted), shape(), wanted};
}

DType Tensor::compute_dtype() const {
  const bool has_copy = state_ && state_->space && state_->space->copies;
  return has_copy ? state_->space->copies.dtype() : dtype();
}

void Tensor::move_to(std::shared_ptr<Storage> storage, int64_t offset_bytes) {
  expect(state_ != nullptr && !state_->node, "only a leaf can be moved");
  const Tensor target(storage, offset_bytes, shape(), dtype());
  copy(*this, target);
  state_->storage = std::move(storage);
  state_->offset_bytes = offset_bytes;
}

}  // namespace lockstep
