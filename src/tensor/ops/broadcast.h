// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>

#include "lockstep/kernels/arithmetic.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"

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

/// Returns the dtype in which an operation computes on all operands that are tensors.
inline DType common_dtype(std::initializer_list<const Operand*> operands, const char* op) {
  const Tensor* first = nullptr;
  for (const Operand* operand : operands) {
    if (operand->is_number()) continue;
    if (first == nullptr) first = &operand->tensor();
    common_dtype(*first, operand->tensor(), op);
  }
  expect(first != nullptr, op, ": one operand must be a tensor");
  return first->compute_dtype();
}

/// Returns x as operations on the model's dtype read it: the 16-bit copy of an f32 parameter, else x itself.
/// Its gradient is that of the parameter.
Tensor computed(const Tensor& x);

/// Returns an operand as a kernel reads it in `dtype`. Throws Error for a number that i32 cannot hold.
OperandView view_of(const Operand& operand, DType dtype, const char* op);

/// Returns the result of a kernel K{.a, .b, .y} on a and b off the tape. `rest` has the kernel's other
/// fields.
template <class K>
Tensor combined(const Operand& a, const Operand& b, K rest = {}, const char* op = K::name) {
  const DType dtype = common_dtype({&a, &b}, op);
  const bool is_same = a.shape() == b.shape();
  const Stream& stream = (a.is_number() ? b : a).tensor().stream();
  const Tensor y = empty(is_same ? a.shape() : broadcast(a.shape(), b.shape(), op), dtype, stream);
  rest.a = view_of(a, dtype, op);
  rest.b = view_of(b, dtype, op);
  rest.y = y.view();
  launch(stream, rest);
  return y;
}

/// Returns what a gradient function keeps of an operand: the operand off the tape, or nothing.
inline Operand kept(const Operand& operand, bool is_needed) {
  return is_needed ? operand.detach() : Operand(0.0);
}

/// An input of a broadcasting operation as its gradient function needs it.
struct BroadcastInput {
  explicit BroadcastInput(const Operand& x)
      : shape(x.shape()),
        dtype(x.is_number() ? DType::f32 : x.tensor().dtype()),
        is_wanted(x.tensor().requires_grad()) {}

  /// Returns `dy` summed over the dimensions along which this input was repeated. It is f32 for an f32
  /// parameter.
  Tensor gradient(const Tensor& dy) const;

  /// Returns gradient(make_dy()) if this input requires a gradient. Else it is empty.
  template <class MakeGradient>
  Tensor gradient_if_wanted(MakeGradient make_dy) const {
    return is_wanted ? gradient(make_dy()) : Tensor();
  }

  Shape shape;
  DType dtype;
  bool is_wanted;
};

}  // namespace lockstep
