// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/broadcast.h"
#include "kernels/kernel.h"

namespace lockstep {

/// Throws Error unless y is what an operation on a and b makes: one dtype, and the broadcast of their shapes.
inline void expect_broadcast(const View& a, const View& b, const View& y, const char* what) {
  expect(b.dtype == a.dtype && y.dtype == a.dtype, what, ": a is ", a.dtype, ", b is ", b.dtype, ", y is ",
         y.dtype, "; one dtype is needed");
  if (a.shape == y.shape && b.shape == y.shape) return;
  const Shape shape = broadcast(a.shape, b.shape, what);
  expect(y.shape == shape, what, ": a is ", a.shape, ", b is ", b.shape, ", which makes ", shape,
         ", but y is ", y.shape);
}

/// y = a + b. Shapes that differ are broadcast().
struct Add {
  static constexpr const char* name = "add";
  View a;  ///< any shape
  View b;  ///< any shape that broadcasts with a's
  View y;  ///< of the broadcast shape; may alias an operand of that shape

  void check() const { expect_broadcast(a, b, y, name); }
};
void run(CpuStream, const Add&);
void run(CudaStream, const Add&);

/// y = a - b, likewise.
struct Subtract {
  static constexpr const char* name = "subtract";
  View a, b, y;  ///< as in Add

  void check() const { expect_broadcast(a, b, y, name); }
};
void run(CpuStream, const Subtract&);
void run(CudaStream, const Subtract&);

/// y = a * b, element by element, likewise.
struct Multiply {
  static constexpr const char* name = "multiply";
  View a, b, y;  ///< as in Add

  void check() const { expect_broadcast(a, b, y, name); }
};
void run(CpuStream, const Multiply&);
void run(CudaStream, const Multiply&);

/// y = a / b, element by element, likewise; as IEEE 754 divides, so 1 / 0 is infinite and 0 / 0 is NaN.
struct Divide {
  static constexpr const char* name = "divide";
  View a, b, y;  ///< as in Add

  void check() const { expect_broadcast(a, b, y, name); }
};
void run(CpuStream, const Divide&);
void run(CudaStream, const Divide&);

}  // namespace lockstep
