// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "lockstep/tensor/ops.h"

namespace lockstep {

/// Two operands of an operator: tensors, or a tensor and a number.
template <class A, class B>
concept TensorOperands = (std::is_same_v<A, Tensor> &&
                          (std::is_same_v<B, Tensor> || std::is_arithmetic_v<B>)) ||
                         (std::is_arithmetic_v<A> && std::is_same_v<B, Tensor>);

template <class A, class B>
requires TensorOperands<A, B> Tensor operator+(const A& a, const B& b) { return add(a, b); }
template <class A, class B>
requires TensorOperands<A, B> Tensor operator-(const A& a, const B& b) { return subtract(a, b); }
template <class A, class B>
requires TensorOperands<A, B> Tensor operator*(const A& a, const B& b) {
  if constexpr (std::is_arithmetic_v<A>)
    return scale(b, static_cast<double>(a));
  else if constexpr (std::is_arithmetic_v<B>)
    return scale(a, static_cast<double>(b));
  else
    return multiply(a, b);
}
template <class A, class B>
requires TensorOperands<A, B> Tensor operator/(const A& a, const B& b) { return divide(a, b); }
inline Tensor operator-(const Tensor& x) { return scale(x, -1.0); }

template <class A, class B>
requires TensorOperands<A, B> Tensor operator<(const A& a, const B& b) { return less(a, b); }
template <class A, class B>
requires TensorOperands<A, B> Tensor operator<=(const A& a, const B& b) { return less_equal(a, b); }
template <class A, class B>
requires TensorOperands<A, B> Tensor operator>(const A& a, const B& b) { return greater(a, b); }
template <class A, class B>
requires TensorOperands<A, B> Tensor operator>=(const A& a, const B& b) { return greater_equal(a, b); }
template <class A, class B>
requires TensorOperands<A, B> Tensor operator==(const A& a, const B& b) { return equal(a, b); }
template <class A, class B>
requires TensorOperands<A, B> Tensor operator!=(const A& a, const B& b) { return not_equal(a, b); }

}  // namespace lockstep
