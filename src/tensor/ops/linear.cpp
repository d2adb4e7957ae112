// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"
#include "kernels/sum.h"
#include "tensor/create.h"
#include "tensor/ops.h"

namespace lockstep {
namespace {

/// Data of the forward that the gradient of a linear layer needs.
struct SavedLinear {
  Tensor x;  ///< empty if the weight needs no gradient: only that gradient reads x
  Tensor weight;
  Tensor bias;  ///< empty if it needs no gradient
  bool wants_dx;
  bool is_out_in;  ///< the weight is [out, in]
};

/// Returns dx, dweight and dbias; an unneeded one is empty. dbias is the sum of dy's rows. The matmul for a
/// weight [in, out] computes it too because it reads dy as its right operand.
Gradients linear_gradients(const SavedLinear& saved, const Tensor& dy, GradientContext& context) {
  const auto& [x, weight, bias, wants_dx, is_out_in] = saved;
  const Stream& stream = dy.stream();
  Tensor dx;
  if (wants_dx) {
    dx = empty(dy.shape().with_last(weight.shape()[is_out_in ? 1 : 0]), dy.dtype(), stream);
    launch(
        stream,
        MatMul{.a = dy.view(), .b = weight.operand(dy.dtype()), .c = dx.view(), .transpose_b = !is_out_in});
  }
  if (!context.wants(1)) {
    const Tensor dbias = bias ? context.gradient_memory(2, bias) : Tensor();
    if (dbias) launch(stream, ColumnSum{.x = dy.view(), .y = dbias.view()});
    return {dx, Tensor(), dbias};
  }
  const auto [dweight, before] = context.gradient_target(1, weight);
  const Tensor dbias = bias ? context.gradient_memory(2, bias) : Tensor();
  launch(stream, MatMul{.a = is_out_in ? dy.view() : x.view(),
                        .b = is_out_in ? x.view() : dy.view(),
                        .c = dweight.view(),
                        .residual = before.view(),
                        .column_sum = is_out_in ? View{} : dbias.view(),
                        .transpose_a = true});
  if (dbias && is_out_in) launch(stream, ColumnSum{.x = dy.view(), .y = dbias.view()});
  return {dx, dweight, dbias};
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual,
              WeightOrder order) {
  const bool is_out_in = order == WeightOrder::out_in;
  expect(weight.shape().rank() == 2 && x.shape().rank() >= 1 &&
             x.shape()[-1] == weight.shape()[is_out_in ? 1 : 0],
         "linear: x is ", x.shape(), ", weight is ", weight.shape(), "; x must be [..., in], weight ",
         is_out_in ? "[out, in]" : "[in, out]");
  const Tensor y = empty(x.shape().with_last(weight.shape()[is_out_in ? 0 : 1]), x.dtype(), x.stream());
  launch(x.stream(), MatMul{.a = x.view(),
                            .b = weight.operand(x.dtype()),
                            .bias = bias.operand(x.dtype()),
                            .c = y.view(),
                            .residual = residual.view(),
                            .transpose_b = is_out_in});
  const SavedLinear saved{weight.requires_grad() ? x.detach() : Tensor(), weight.detach(),
                          bias.requires_grad() ? bias.detach() : Tensor(), x.requires_grad(), is_out_in};
  return record("linear", y, {x, weight, bias, residual},
                [saved](const Tensor& dy, GradientContext& context) -> Gradients {
                  Gradients gradients = linear_gradients(saved, dy, context);
                  gradients.push_back(dy);
                  return gradients;
                });
}

}  // namespace lockstep
