// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise.h"

#include "kernels/arithmetic.h"
#include "tensor/create.h"
#include "tensor/ops.h"

namespace lockstep {
namespace {

Tensor scaled(const Tensor& x, double factor) {
  const Tensor y = empty_like(x);
  launch(x.stream(), Scale{.x = x.view(), .y = y.view(), .factor = factor});
  return y;
}

/// What Add, Subtract or Multiply makes of a and b.
template <class Kernel>
Tensor combined(const Tensor& a, const Tensor& b) {
  const Tensor y = empty_like(a);
  launch(a.stream(), Kernel{.a = a.view(), .b = b.view(), .y = y.view()});
  return y;
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  return record("add", combined<Add>(a, b), {a, b}, [](const Tensor& dy) -> Gradients { return {dy, dy}; });
}

Tensor subtract(const Tensor& a, const Tensor& b) {
  return record("subtract", combined<Subtract>(a, b), {a, b}, [](const Tensor& dy) -> Gradients {
    return {dy, scaled(dy, -1.0)};
  });
}

Tensor multiply(const Tensor& a, const Tensor& b) {
  return record("multiply", combined<Multiply>(a, b), {a, b},
                [a = a.detach(), b = b.detach()](const Tensor& dy) -> Gradients {
                  return {combined<Multiply>(dy, b), combined<Multiply>(dy, a)};
                });
}

Tensor scale(const Tensor& x, double factor) {
  return record("scale", scaled(x, factor), {x},
                [factor](const Tensor& dy) -> Gradients { return {scaled(dy, factor)}; });
}

Tensor relu(const Tensor& x) {
  const Tensor y = empty_like(x);
  launch(x.stream(), ReluForward{.x = x.view(), .y = y.view()});
  return record("relu", y, {x}, [x = x.detach()](const Tensor& dy) -> Gradients {
    Tensor dx = empty_like(x);
    launch(x.stream(), ReluBackward{.x = x.view(), .dy = dy.view(), .dx = dx.view()});
    return {dx};
  });
}

Tensor tanh(const Tensor& x) {
  const Tensor y = empty_like(x);
  launch(x.stream(), TanhForward{.x = x.view(), .y = y.view()});
  return record("tanh", y, {x}, [y = y.detach()](const Tensor& dy) -> Gradients {
    Tensor dx = empty_like(y);
    launch(y.stream(), TanhBackward{.y = y.view(), .dy = dy.view(), .dx = dx.view()});
    return {dx};
  });
}

Tensor gelu(const Tensor& x, Gelu form) {
  const Tensor y = empty_like(x);
  launch(x.stream(), GeluForward{.x = x.view(), .y = y.view(), .form = form});
  return record("gelu", y, {x}, [x = x.detach(), form](const Tensor& dy) -> Gradients {
    Tensor dx = empty_like(x);
    launch(x.stream(), GeluBackward{.x = x.view(), .dy = dy.view(), .dx = dx.view(), .form = form});
    return {dx};
  });
}

}  // namespace lockstep
