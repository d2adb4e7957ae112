// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/core/memory.h"
#include "lockstep/kernels/view.h"

namespace lockstep {

namespace detail {
struct TensorState;
}

/// A block of memory that tensors share, on the stream it was made for.
struct Storage {
  std::shared_ptr<std::byte> data;  ///< own memory or a part of another owner's memory, kept alive by this
  int64_t bytes = 0;
  Stream stream;

  static std::shared_ptr<Storage> make(int64_t bytes, const Stream& stream) {
    return std::make_shared<Storage>(Storage{allocate(bytes, stream), bytes, stream});
  }
};

class Tensor;

/// Initial values of a parameter as a function of the element. So any part can be computed alone.
struct InitialValues {
  /// Fills `part` [n] with the elements [first, first + n) in the parameter's memory order.
  std::function<void(const Tensor& part, int64_t first)> fill;
  /// Identifies the function: equal texts mean equal values.
  std::string name;
  /// Returns the values that a seed and the parameter's place in its model give. Empty if they need neither.
  /// If it is set, `fill` and `name` may be empty.
  std::function<InitialValues(uint64_t seed, uint32_t place)> with_seed = {};
  bool are_zero = false;  ///< zeros are meant, so training may start with them
};

/// A contiguous array of one dtype that operations can record on the tape. As in PyTorch, copies are handles
/// to the same tensor: all share its data and gradient and see its rebinding.
class Tensor {
 public:
  /// Makes an empty tensor: operator bool is false.
  Tensor() = default;
  /// Makes a tensor of `shape` and `dtype` in `storage` from byte `offset_bytes` on. Throws Error if it does
  /// not fit.
  Tensor(std::shared_ptr<Storage> storage, int64_t offset_bytes, Shape shape, DType dtype);
  /// Returns a leaf that gets memory when it is first read or written. This is a parameter: its model's space
  /// may place it elsewhere or shard it before that.
  /// Messages call it `name`.
  static Tensor declare(const Shape& shape, DType dtype, const Stream& stream, const InitialValues& values,
                        const std::string& name = "");
  /// Gives a declared leaf other initial values. A leaf that has memory already is filled with them.
  void initialize(const InitialValues& values) const;
  /// Draws initial values that depend on a seed. Others do not change.
  void initialize_with_seed(uint64_t seed, uint32_t place) const;

  explicit operator bool() const { return state_ != nullptr; }
  const Shape& shape() const;
  DType dtype() const;
  int64_t size() const { return shape().elements(); }
  const Stream& stream() const;
  /// Returns the elements in memory. For a sharded parameter they are in a buffer that is valid until the
  /// next kernel has been launched; see ParameterMemory.
  View view() const;
  template <class T>
  T* data() const {
    return view().as<T>();
  }

  /// Returns the same elements in the same order under another shape; one extent may be -1. Differentiable.
  Tensor reshape(Shape shape) const;
  Tensor reshape(std::initializer_list<int64_t> extents) const;
  /// Returns rows [begin, end) of the first dimension, sharing memory. Differentiable.
  Tensor slice(int64_t begin, int64_t end) const;
  /// Returns a tensor with the same memory, off the tape.
  Tensor detach() const;

  /// Makes this a leaf whose gradient backward() computes.
  Tensor& set_requires_grad(bool on = true);
  /// Returns true for leaves that require a gradient and for results recorded from them.
  bool requires_grad() const;
  /// Returns the gradient of the last backward(). Before the first it is empty. Throws Error if this rank
  /// holds only a part of the gradients.
  Tensor grad() const;

  /// Returns this parameter as operations on tensors of `dtype` read it: itself or the 16-bit copy in its
  /// parameter space. Throws Error if it has no copy of that dtype.
  View operand(DType dtype) const;
  /// Returns the dtype in which a model computes with this parameter.
  DType compute_dtype() const;

  /// Returns the identity of the tensor. Copies of a handle have the same one.
  const void* id() const { return state_.get(); }

 private:
  friend class Tape;
  /// Returns the state. Throws Error for an empty tensor, of which `what` was asked.
  const detail::TensorState& state(const char* what) const;
  /// Returns the elements from `first` on under another shape, off the tape.
  Tensor part(int64_t first, const Shape& shape) const;

  std::shared_ptr<detail::TensorState> state_;
};

/// A parameter as models list it: a unique name with dots between levels and the tensor.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

}  // namespace lockstep
