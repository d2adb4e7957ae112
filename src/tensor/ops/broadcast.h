// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/arithmetic.h"
#include "tensor/create.h"

namespace lockstep {

/// Returns the index of a dimension; negative ones count from the last. Throws Error that names the operation
/// and the shape.
inline int place_of(int dimension, const Shape& shape, const char* op) {
  const int rank = shape.rank();
  expect(-rank <= dimension && dimension < rank, op, ": x is ", shape, " and has no dimension ", dimension,
         rank == 0 ? "; a scalar has none" : concat("; it must be in [", -rank, ", ", rank - 1, "]"));
  return dimension < 0 ? dimension + rank : dimension;
}

/// Returns the dtype in which an operation computes on both. Throws Error if their dtypes differ.
inline DType common_dtype(const Tensor& a, const Tensor& b, const char* op) {
  expect(a.compute_dtype() == b.compute_dtype(), op, ": a is ", a.shape(), " ", a.compute_dtype(), ", b is ",
         b.shape(), " ", b.compute_dtype(), "; convert() one of them to the dtype of the other");
  return a.compute_dtype();
}

/// Returns the result of an arithmetic kernel on a and b off the tape. The kernel is Add, Subtract, Multiply
/// or Divide.
template <class Kernel>
Tensor combined(const Tensor& a, const Tensor& b) {
  const DType dtype = common_dtype(a, b, Kernel::name);
  const bool is_same = a.shape() == b.shape();
  const Tensor y =
      empty(is_same ? a.shape() : broadcast(a.shape(), b.shape(), Kernel::name), dtype, a.stream());
  launch(a.stream(), Kernel{.a = a.operand(dtype), .b = b.operand(dtype), .y = y.view()});
  return y;
}

/// An input of a broadcasting operation as its gradient function needs it.
struct BroadcastInput {
  explicit BroadcastInput(const Tensor& x)
      : shape(x.shape()), dtype(x.dtype()), is_wanted(x.requires_grad()) {}

  /// Returns `dy` summed over the dimensions along which this input was repeated. It is f32 for an f32
  /// parameter.
  Tensor gradient(const Tensor& dy) const;

  Shape shape;
  DType dtype;
  bool is_wanted;
};

}  // namespace lockstep
