// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/arithmetic.h"

namespace lockstep {

/// y = a^b, element by element. Operands of different shapes are broadcast(). Special cases are those of
/// IEEE 754: x^0 = 1^x = 1 for every x, and a negative number to a power that is not whole is NaN. Except in
/// f64 the result is rounded once, from an error below 2^-37. In f64 the error is 2^-52 (1 + |b log(a)|).
struct Power {
  static constexpr const char* name = "pow";
  OperandView a, b;
  View y;  ///< broadcast shape of a and b; may alias an operand of that shape

  void check() const { expect_broadcast(a, b, y, name); }
};
void run(CpuStream, const Power&);
void run(CudaStream, const Power&);

}  // namespace lockstep
