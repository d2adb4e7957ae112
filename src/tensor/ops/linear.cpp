// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"
#include "tensor/create.h"
#include "tensor/ops.h"

namespace lockstep {
namespace {

/// dx, dweight and dbias of x . weight^T + bias, each only where it is wanted.
Gradients linear_gradients(const Tensor& x, const Tensor& weight, const Tensor& dy, bool want_dx,
                           bool want_bias) {
  Tensor dx, dbias;
  if (want_dx) {
    dx = empty_like(x);
    launch(x.stream(), MatMul{.a = dy.view(), .b = weight.view(), .c = dx.view()});
  }
  Tensor dweight = empty_like(weight);
  launch(x.stream(), MatMul{.a = dy.view(), .b = x.view(), .c = dweight.view(), .transpose_a = true});
  if (want_bias) {
    dbias = empty({weight.shape()[0]}, x.dtype(), x.stream());
    launch(x.stream(), ColumnSum{.x = dy.view(), .y = dbias.view()});
  }
  return {dx, dweight, dbias};
}

void check_linear(const Tensor& x, const Tensor& weight) {
  expect(weight.shape().rank() == 2 && x.shape().rank() >= 1 && x.shape()[-1] == weight.shape()[1],
         "linear: x is ", x.shape(), ", weight is ", weight.shape(),
         "; x must be [..., in], weight [out, in]");
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_linear(x, weight);
  const Tensor y = empty(x.shape().with_last(weight.shape()[0]), x.dtype(), x.stream());
  launch(x.stream(),
         MatMul{.a = x.view(), .b = weight.view(), .bias = bias.view(), .c = y.view(), .transpose_b = true});
  return record("linear", y, {x, weight, bias},
                [x = x.detach(), weight = weight.detach(), want_dx = x.requires_grad(),
                 want_bias = bias.requires_grad()](const Tensor& dy) -> Gradients {
                  return linear_gradients(x, weight, dy, want_dx, want_bias);
                });
}

Tensor linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias, Gelu form) {
  check_linear(x, weight);
  const Tensor y = empty(x.shape().with_last(weight.shape()[0]), x.dtype(), x.stream());
  const Tensor z = is_recorded({x, weight, bias}) ? empty_like(y) : Tensor();
  launch(x.stream(), MatMul{.a = x.view(),
                            .b = weight.view(),
                            .bias = bias.view(),
                            .c = y.view(),
                            .pre_activation = z.view(),
                            .transpose_b = true,
                            .activation = form == Gelu::tanh ? Activation::gelu_tanh : Activation::gelu_erf});
  return record("linear_gelu", y, {x, weight, bias},
                [x = x.detach(), weight = weight.detach(), z, form, want_dx = x.requires_grad(),
                 want_bias = bias.requires_grad()](const Tensor& dy) -> Gradients {
                  const Tensor dz = empty_like(z);
                  launch(z.stream(),
                         GeluBackward{.x = z.view(), .dy = dy.view(), .dx = dz.view(), .form = form});
                  return linear_gradients(x, weight, dz, want_dx, want_bias);
                });
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  expect(a.shape().rank() == 2 && b.shape().rank() == 2 && a.shape()[1] == b.shape()[0], "matmul: a is ",
         a.shape(), ", b is ", b.shape(), "; they must be [m, k] and [k, n]");
  const Tensor y = empty({a.shape()[0], b.shape()[1]}, a.dtype(), a.stream());
  launch(a.stream(), MatMul{.a = a.view(), .b = b.view(), .c = y.view()});
  return record("matmul", y, {a, b}, [a = a.detach(), b = b.detach()](const Tensor& dy) -> Gradients {
    Tensor da = empty_like(a), db = empty_like(b);
    launch(a.stream(), MatMul{.a = dy.view(), .b = b.view(), .c = da.view(), .transpose_b = true});
    launch(a.stream(), MatMul{.a = a.view(), .b = dy.view(), .c = db.view(), .transpose_a = true});
    return {da, db};
  });
}

}  // namespace lockstep
