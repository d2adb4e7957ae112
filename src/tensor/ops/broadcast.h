// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/arithmetic.h"
#include "tensor/create.h"

namespace lockstep {

/// The place of a dimension that may count from the last. Throws Error naming the operation and the shape.
inline int place_of(int dimension, const Shape& shape, const char* op) {
  const int rank = shape.rank();
  expect(-rank <= dimension && dimension < rank, op, ": x is ", shape, " and has no dimension ", dimension,
         rank == 0 ? "; a scalar has none" : concat("; it must be in [", -rank, ", ", rank - 1, "]"));
  return dimension < 0 ? dimension + rank : dimension;
}

/// The dtype in which an operation computes on both. Throws Error unless it is one.
inline DType common_dtype(const Tensor& a, const Tensor& b, const char* op) {
  expect(a.compute_dtype() == b.compute_dtype(), op, ": a is ", a.shape(), " ", a.compute_dtype(), ", b is ",
         b.shape(), " ", b.compute_dtype(), "; one dtype is needed: convert() makes another");
  return a.compute_dtype();
}

/// What Add, Subtract, Multiply or Divide makes of a and b, off the tape.
template <class Kernel>
Tensor combined(const Tensor& a, const Tensor& b) {
  const DType dtype = common_dtype(a, b, Kernel::name);
  const bool is_same = a.shape() == b.shape();
  const Tensor y =
      empty(is_same ? a.shape() : broadcast(a.shape(), b.shape(), Kernel::name), dtype, a.stream());
  launch(a.stream(), Kernel{.a = a.operand(dtype), .b = b.operand(dtype), .y = y.view()});
  return y;
}

/// An input of an operation that broadcasts, as the gradient sees it.
struct BroadcastInput {
  explicit BroadcastInput(const Tensor& x)
      : shape(x.shape()), dtype(x.dtype()), is_wanted(x.requires_grad()) {}

  /// `dy` [a shape that this one was repeated to], added up where it was; f32 for an f32 parameter.
  Tensor gradient(const Tensor& dy) const;

  Shape shape;
  DType dtype;
  bool is_wanted;
};

}  // namespace lockstep
