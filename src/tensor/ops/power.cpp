// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/power.h"

#include "lockstep/tensor/ops/broadcast.h"

namespace lockstep {
namespace {

/// Returns x^exponent off the tape. Some exponents have cheaper kernels.
Tensor powered(const Tensor& x, double exponent) {
  if (exponent == 2.0) return combined<Multiply>(x, x);
  if (exponent == 1.0) return combined<Multiply>(x, 1.0);
  if (exponent == -1.0) return combined<Divide>(1.0, x);
  return combined<Power>(x, exponent);
}

/// Returns d/da a^b * dy = b * a^(b - 1) * dy. It is 0 where b is 0, also for a = 0.
Tensor base_gradient(const Operand& a, const Operand& b, const Tensor& dy) {
  const NoGrad no_grad;
  if (b.is_number() && b.number() == 0.0) return full(dy.shape(), 0.0, dy.dtype(), dy.stream());
  if (b.is_number())
    return combined<Multiply>(combined<Multiply>(powered(a.tensor(), b.number() - 1.0), b.number()), dy);
  const Tensor slope = combined<Multiply>(b, combined<Power>(a, combined<Subtract>(b, 1.0)));
  return where(equal(b, 0.0), 0.0, combined<Multiply>(slope, dy));
}

/// Returns d/db a^b * dy = a^b * log(a) * dy. It is 0 where a is 0 and b is not negative.
Tensor exponent_gradient(const Operand& a, const Operand& b, const Tensor& y, const Tensor& dy) {
  const NoGrad no_grad;
  const Tensor base = a.is_number() ? full({}, a.number(), y.dtype(), y.stream()) : a.tensor();
  const Tensor is_flat = combined<Multiply>(equal(base, 0.0), greater_equal(b, 0.0));
  const Tensor slope = combined<Multiply>(y, log(base));
  return where(is_flat, 0.0, combined<Multiply>(slope, dy));
}

/// Returns a number as it is and a tensor as computed().
Operand computed_operand(const Operand& x) { return x.is_number() ? x : Operand(computed(x.tensor())); }

}  // namespace

Tensor pow(const Operand& base, const Operand& exponent) {
  const OperationScope operation("pow");
  const Operand a = computed_operand(base), b = computed_operand(exponent);
  const BroadcastInput of_a(a), of_b(b);
  const Tensor y = b.is_number() && !a.is_number() ? powered(a.tensor(), b.number()) : combined<Power>(a, b);
  return record("pow", y, {a.tensor(), b.tensor()},
                [a = a.detach(), b = b.detach(), y = kept(y, of_b.is_wanted), of_a,
                 of_b](const Tensor& dy) -> Gradients {
                  return {of_a.gradient_if_wanted([&] { return base_gradient(a, b, dy); }),
                          of_b.gradient_if_wanted([&] { return exponent_gradient(a, b, y.tensor(), dy); })};
                });
}

}  // namespace lockstep
