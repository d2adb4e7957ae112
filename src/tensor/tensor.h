// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kernels/view.h"
#include "tensor/storage.h"

namespace lockstep {

struct TensorState;
struct GradientNode;
class Tensor;

/// What a parameter begins with, as a function of the element: so that any part of it can be made by whoever
/// needs that part.
struct InitialValues {
  /// Fills `part`, [n], with elements [first, first + n) in the order in which the parameter lies in memory.
  std::function<void(const Tensor& part, int64_t first)> fill;
  /// Says which function that is: equal texts mean equal values.
  std::string name;
};

/// A contiguous array of one dtype, with a place on the tape. Copies are handles to the same tensor, as in
/// PyTorch: what one copy sees (data, gradient, rebinding), all see.
class Tensor {
 public:
  /// Nothing: operator bool is false.
  Tensor() = default;
  /// `shape` elements of `dtype` in `storage` from byte `offset_bytes`. Throws Error if they do not fit.
  Tensor(std::shared_ptr<Storage> storage, int64_t offset_bytes, Shape shape, DType dtype);
  /// A leaf without memory, until something reads or writes it: a parameter, which its model's space may
  /// place elsewhere first, or cut between ranks.
  static Tensor declare(const Shape& shape, DType dtype, const Stream& stream, InitialValues values);
  /// Gives such a leaf other initial values; one that has memory by now is filled with them.
  void initialize(InitialValues values) const;

  explicit operator bool() const { return state_ != nullptr; }
  const Shape& shape() const;
  DType dtype() const;
  int64_t size() const { return shape().elements(); }
  const Stream& stream() const;
  /// The elements in memory. Of a parameter that is cut between ranks: in a buffer that holds until the next
  /// kernel has been launched; see ParameterMemory.
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

  /// Identity of the tensor: equal for copies of one handle.
  const void* id() const { return state_.get(); }

 private:
  friend class Tape;
  /// The same elements from the `first` on under another shape, off the tape.
  Tensor part(int64_t first, const Shape& shape) const;

  std::shared_ptr<TensorState> state_;
};

/// A parameter as models list them: a unique name with dots between levels, and its tensor.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

}  // namespace lockstep
