// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"
#include "tensor/create.h"
#include "tensor/ops.h"

namespace lockstep {
namespace {

/// What the gradient of a linear layer needs of its forward.
struct Saved {
  Tensor x, weight;
  Tensor bias;  ///< empty if its gradient is not wanted
  bool wants_dx;
};

/// dx, dweight and dbias of x . weight^T + bias, each only where it is wanted; the bias's is that of dy's
/// rows, which the product for dweight reads anyway.
Gradients linear_gradients(const Saved& saved, const Tensor& dy) {
  const auto& [x, weight, bias, wants_dx] = saved;
  Tensor dx;
  if (wants_dx) {
    dx = empty_like(x);
    launch(x.stream(), MatMul{.a = dy.view(), .b = weight.operand(x.dtype()), .c = dx.view()});
  }
  const Tensor dweight = gradient_memory(1, weight);
  const Tensor dbias = bias ? gradient_memory(2, bias) : Tensor();
  launch(
      x.stream(),
      MatMul{
          .a = dy.view(), .b = x.view(), .c = dweight.view(), .row_sum = dbias.view(), .transpose_a = true});
  return {dx, dweight, dbias};
}

void check_linear(const Tensor& x, const Tensor& weight) {
  expect(weight.shape().rank() == 2 && x.shape().rank() >= 1 && x.shape()[-1] == weight.shape()[1],
         "linear: x is ", x.shape(), ", weight is ", weight.shape(),
         "; x must be [..., in], weight [out, in]");
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual) {
  check_linear(x, weight);
  const Tensor y = empty(x.shape().with_last(weight.shape()[0]), x.dtype(), x.stream());
  launch(x.stream(), MatMul{.a = x.view(),
                            .b = weight.operand(x.dtype()),
                            .bias = bias.operand(x.dtype()),
                            .c = y.view(),
                            .residual = residual.view(),
                            .transpose_b = true});
  const Saved saved{x.detach(), weight.detach(), bias.requires_grad() ? bias.detach() : Tensor(),
                    x.requires_grad()};
  return record("linear", y, {x, weight, bias, residual}, [saved](const Tensor& dy) -> Gradients {
    Gradients gradients = linear_gradients(saved, dy);
    gradients.push_back(dy);
    return gradients;
  });
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  expect(a.shape().rank() == 2 && b.shape().rank() == 2 && a.shape()[1] == b.shape()[0], "matmul: a is ",
         a.shape(), ", b is ", b.shape(), "; they must be [m, k] and [k, n]");
  const Tensor y = empty({a.shape()[0], b.shape()[1]}, a.dtype(), a.stream());
  launch(a.stream(), MatMul{.a = a.view(), .b = b.view(), .c = y.view()});
  return record("matmul", y, {a, b}, [a = a.detach(), b = b.detach()](const Tensor& dy) -> Gradients {
    const Tensor da = gradient_memory(0, a), db = gradient_memory(1, b);
    launch(a.stream(), MatMul{.a = dy.view(), .b = b.view(), .c = da.view(), .transpose_b = true});
    launch(a.stream(), MatMul{.a = a.view(), .b = dy.view(), .c = db.view(), .transpose_a = true});
    return {da, db};
  });
}

}  // namespace lockstep
