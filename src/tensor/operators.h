// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <type_traits>

#include "lockstep/tensor/ops.h"

namespace lockstep {

/// A result of a comparison. `if (a < b)` does not compile, because a tensor is true if it is not empty:
/// write `if (item(a) < item(b))`.
struct Mask : Tensor {
  Mask(const Tensor& tensor) : Tensor(tensor) {}
  explicit operator bool() const = delete;
};

/// Two operands of an operator: tensors, or a tensor and a number.
template <class A, class B>
concept TensorOperands = (std::derived_from<A, Tensor> &&
                          (std::derived_from<B, Tensor> || std::is_arithmetic_v<B>)) ||
                         (std::is_arithmetic_v<A> && std::derived_from<B, Tensor>);

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
requires TensorOperands<A, B> Mask operator<(const A& a, const B& b) { return less(a, b); }
template <class A, class B>
requires TensorOperands<A, B> Mask operator<=(const A& a, const B& b) { return less_equal(a, b); }
template <class A, class B>
requires TensorOperands<A, B> Mask operator>(const A& a, const B& b) { return greater(a, b); }
template <class A, class B>
requires TensorOperands<A, B> Mask operator>=(const A& a, const B& b) { return greater_equal(a, b); }
template <class A, class B>
requires TensorOperands<A, B> Mask operator==(const A& a, const B& b) { return equal(a, b); }
template <class A, class B>
requires TensorOperands<A, B> Mask operator!=(const A& a, const B& b) { return not_equal(a, b); }

}  // namespace lockstep
