// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/broadcast.h"
#include "lockstep/kernels/kernel.h"

namespace lockstep {

/// Throws Error unless a, b and y share a dtype and y has the broadcast shape of a and b.
inline void expect_broadcast(const OperandView& a, const OperandView& b, const View& y, const char* what) {
  expect(b.dtype == a.dtype && y.dtype == a.dtype, what, ": a is ", a.dtype, ", b is ", b.dtype, ", y is ",
         y.dtype, "; one dtype is needed");
  if (a.shape == y.shape && b.shape == y.shape) return;
  const Shape shape = broadcast(a.shape, b.shape, what);
  expect(y.shape == shape, what, ": a is ", a.shape, ", b is ", b.shape, ", which makes ", shape,
         ", but y is ", y.shape);
}

/// y = a + b, element by element. Operands of different shapes are broadcast().
struct Add {
  static constexpr const char* name = "add";
  OperandView a;  ///< any shape
  OperandView b;  ///< any shape that broadcasts with a's
  View y;         ///< broadcast shape of a and b; may alias an operand of that shape

  void check() const { expect_broadcast(a, b, y, name); }
};
void run(CpuStream, const Add&);
void run(CudaStream, const Add&);

/// y = a - b, element by element. Operands of different shapes are broadcast().
struct Subtract {
  static constexpr const char* name = "subtract";
  OperandView a, b;
  View y;  ///< broadcast shape of a and b; may alias an operand of that shape

  void check() const { expect_broadcast(a, b, y, name); }
};
void run(CpuStream, const Subtract&);
void run(CudaStream, const Subtract&);

/// y = a * b, element by element. Operands of different shapes are broadcast().
struct Multiply {
  static constexpr const char* name = "multiply";
  OperandView a, b;
  View y;  ///< broadcast shape of a and b; may alias an operand of that shape

  void check() const { expect_broadcast(a, b, y, name); }
};
void run(CpuStream, const Multiply&);
void run(CudaStream, const Multiply&);

/// y = a / b, element by element. Operands of different shapes are broadcast(). Division follows IEEE 754:
/// 1 / 0 is infinite and 0 / 0 is NaN.
struct Divide {
  static constexpr const char* name = "divide";
  OperandView a, b;
  View y;  ///< broadcast shape of a and b; may alias an operand of that shape

  void check() const { expect_broadcast(a, b, y, name); }
};
void run(CpuStream, const Divide&);
void run(CudaStream, const Divide&);

}  // namespace lockstep
