// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise.h"

#include "kernels/arithmetic.h"
#include "kernels/convert.h"
#include "tensor/create.h"
#include "tensor/ops.h"

namespace lockstep {
namespace {

Tensor scaled(const Tensor& x, double factor) {
  const Tensor y = empty_like(x);
  launch(x.stream(), Scale{.x = x.view(), .y = y.view(), .factor = factor});
  return y;
}

}  // namespace

Tensor scale(const Tensor& x, double factor) {
  return record("scale", scaled(x, factor), {x},
                [factor](const Tensor& dy) -> Gradients { return {scaled(dy, factor)}; });
}

Tensor convert(const Tensor& x, DType dtype) {
  if (dtype == x.dtype()) return x;
  const Tensor y = empty(x.shape(), dtype, x.stream());
  launch(x.stream(), Convert{.x = x.view(), .y = y.view()});
  return record("convert", y, {x},
                [from = x.dtype()](const Tensor& dy) -> Gradients { return {convert(dy, from)}; });
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

Tensor exp(const Tensor& x) {
  const Tensor y = empty_like(x);
  launch(x.stream(), Exp{.x = x.view(), .y = y.view()});
  return record("exp", y, {x}, [y = y.detach()](const Tensor& dy) -> Gradients {
    Tensor dx = empty_like(y);
    launch(y.stream(), Multiply{.a = dy.view(), .b = y.view(), .y = dx.view()});
    return {dx};
  });
}

Tensor log(const Tensor& x) {
  const Tensor y = empty_like(x);
  launch(x.stream(), Log{.x = x.view(), .y = y.view()});
  return record("log", y, {x}, [x = x.detach()](const Tensor& dy) -> Gradients {
    Tensor dx = empty_like(x);
    launch(x.stream(), Divide{.a = dy.view(), .b = x.view(), .y = dx.view()});
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
