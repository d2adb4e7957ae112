// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/arithmetic.h"

namespace lockstep {

enum class Comparison { less, less_equal, equal, not_equal };

/// y = 1 where a and b compare so, else 0. Operands of different shapes are broadcast(). A NaN differs from
/// every number and from every NaN.
struct Compare {
  static constexpr const char* name = "compare";
  Comparison comparison = Comparison::less;
  OperandView a, b;  ///< any dtype
  View y;            ///< broadcast shape and dtype of a and b; may alias an operand of that shape

  void check() const { expect_broadcast(a, b, y, name); }
};
void run(CpuStream, const Compare&);
void run(CudaStream, const Compare&);

/// y = the larger of a and b, or NaN if one of them is. Operands of different shapes are broadcast().
struct Maximum {
  static constexpr const char* name = "maximum";
  OperandView a, b;  ///< any dtype
  View y;            ///< broadcast shape and dtype of a and b; may alias an operand of that shape

  void check() const { expect_broadcast(a, b, y, name); }
};
void run(CpuStream, const Maximum&);
void run(CudaStream, const Maximum&);

/// y = the smaller of a and b, or NaN if one of them is. Operands of different shapes are broadcast().
struct Minimum {
  static constexpr const char* name = "minimum";
  OperandView a, b;  ///< any dtype
  View y;            ///< broadcast shape and dtype of a and b; may alias an operand of that shape

  void check() const { expect_broadcast(a, b, y, name); }
};
void run(CpuStream, const Minimum&);
void run(CudaStream, const Minimum&);

/// y = a where the mask is not 0, else b. Operands of different shapes are broadcast().
struct Where {
  static constexpr const char* name = "where";
  View mask;         ///< any dtype
  OperandView a, b;  ///< dtype of the mask
  View y;            ///< broadcast shape and dtype of all three; may alias an operand of that shape

  void check() const {
    expect(a.dtype == mask.dtype && b.dtype == mask.dtype && y.dtype == mask.dtype, name, ": the mask is ",
           mask.dtype, ", a is ", a.dtype, ", b is ", b.dtype, ", y is ", y.dtype, "; one dtype is needed");
    const Shape shape = broadcast(mask.shape, broadcast(a.shape, b.shape, name), name);
    expect(y.shape == shape, name, ": the operands make ", shape, ", but y is ", y.shape);
  }
};
void run(CpuStream, const Where&);
void run(CudaStream, const Where&);

}  // namespace lockstep
