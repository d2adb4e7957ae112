// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/ops.h"

namespace lockstep {

// Operators for the arithmetic functions of ops.h: add, subtract, multiply, divide and scale.

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return subtract(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return multiply(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return divide(a, b); }
inline Tensor operator*(double factor, const Tensor& x) { return scale(x, factor); }

}  // namespace lockstep
