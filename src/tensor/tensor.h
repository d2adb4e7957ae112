// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "kernels/view.h"
#include "tensor/storage.h"

namespace lockstep {

struct TensorState;
struct GradientNode;
struct FlatMemory;

/// A contiguous array of one dtype, with a place on the tape. Copies are handles to the same tensor, as in
/// PyTorch: what one copy sees (data, gradient, rebinding), all see.
class Tensor {
 public:
  /// Nothing: operator bool is false.
  Tensor() = default;
  /// `shape` elements of `dtype` in `storage` from byte `offset_bytes`. Throws Error if they do not fit.
  Tensor(std::shared_ptr<Storage> storage, int64_t offset_bytes, Shape shape, DType dtype);

  explicit operator bool() const { return state_ != nullptr; }
  const Shape& shape() const;
  DType dtype() const;
  int64_t size() const { return shape().elements(); }
  const Stream& stream() const;
  View view() const;
  template <class T>
  T* data() const {
    return view().as<T>();
  }

  /// The same elements in the same order under another shape; one extent may be -1. Differentiable.
  Tensor reshape(Shape shape) const;
  Tensor reshape(std::initializer_list<int64_t> extents) const;
  /// Rows [begin, end) of the first dimension, sharing memory. Differentiable.
  Tensor slice(int64_t begin, int64_t end) const;
  /// The same memory, off the tape.
  Tensor detach() const;

  /// Makes this a leaf whose gradient backward() computes.
  Tensor& set_requires_grad(bool on = true);
  /// True for such leaves and for what is computed from them while the tape records.
  bool requires_grad() const;
  /// The gradient of the last backward(); empty before the first. Throws Error where ranks hold only segments
  /// of gradients.
  Tensor grad() const;

  /// This parameter as operations on tensors of `dtype` read it: itself, or the copy in 16 bits that its
  /// parameter space keeps. Throws Error if there is none of that dtype.
  View operand(DType dtype) const;
  /// The dtype in which a model computes with this parameter.
  DType compute_dtype() const;

  /// Moves this leaf's data to another place of the same size; the values are copied there.
  void move_to(std::shared_ptr<Storage> storage, int64_t offset_bytes);

  /// Identity of the tensor: equal for copies of one handle.
  const void* id() const { return state_.get(); }

 private:
  friend class Tape;
  std::shared_ptr<TensorState> state_;
};

/// A parameter as models list them: a unique name with dots between levels, and its tensor.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

}  // namespace lockstep
