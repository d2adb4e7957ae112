// SPDX-License-Identifier: Apache-2.0
#include "kernels/layer_norm.h"

#include "tensor/create.h"
#include "tensor/ops.h"

namespace lockstep {
namespace {

/// Results of the forward that the gradient needs.
struct Normed {
  Tensor x, y, mean, rstd;
};

/// Normalizes x + branch if there is a branch. Else it normalizes x.
Normed normalize(const Tensor& x, const Tensor& branch, const Tensor& weight, const Tensor& bias,
                 double epsilon) {
  Normed result{.x = branch ? empty_like(x) : x.detach(), .y = empty_like(x), .mean = {}, .rstd = {}};
  result.mean = empty({x.shape().rows()}, accumulator_dtype(x.dtype()), x.stream());
  result.rstd = empty_like(result.mean);
  launch(x.stream(), LayerNormForward{.x = x.view(),
                                      .residual = branch.view(),
                                      .weight = weight.operand(x.dtype()),
                                      .bias = bias.operand(x.dtype()),
                                      .sum = branch ? result.x.view() : View{},
                                      .y = result.y.view(),
                                      .mean = result.mean.view(),
                                      .rstd = result.rstd.view(),
                                      .epsilon = epsilon});
  return result;
}

/// Puts the norm of `x` on the tape. In the same pass the backward adds the gradient that x has already
/// received. In a residual stream x has one.
Tensor record_norm(const Tensor& x, const Normed& normed, const Tensor& weight, const Tensor& bias) {
  return record("layer_norm", normed.y, {x, weight, bias},
                [x = normed.x.detach(), mean = normed.mean, rstd = normed.rstd, weight = weight.detach(),
                 bias = bias.detach()](const Tensor& dy, GradientContext& context) {
                  const Tensor dx = empty_like(x), dweight = context.gradient_memory(1, weight);
                  const Tensor dbias = bias ? context.gradient_memory(2, bias) : Tensor();
                  const Tensor carried = context.take_gradient(0), dx_sum = context.column_sum_memory(0);
                  launch(x.stream(), LayerNormBackward{.x = x.view(),
                                                       .weight = weight.operand(x.dtype()),
                                                       .mean = mean.view(),
                                                       .rstd = rstd.view(),
                                                       .dy = dy.view(),
                                                       .carried = carried.view(),
                                                       .dx = dx.view(),
                                                       .dweight = dweight.view(),
                                                       .dbias = dbias.view(),
                                                       .dx_sum = dx_sum.view()});
                  return Gradients{dx, dweight, dbias};
                });
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon) {
  return record_norm(x, normalize(x, {}, weight, bias, epsilon), weight, bias);
}

SumAndNorm add_layer_norm(const Tensor& x, const Tensor& branch, const Tensor& weight, const Tensor& bias,
                          double epsilon) {
  expect(branch.shape() == x.shape(), "add_layer_norm: branch is ", branch.shape(), ", x is ", x.shape());
  const Normed normed = normalize(x, branch, weight, bias, epsilon);
  const Tensor sum = record("add", normed.x, {x, branch}, [](const Tensor& dy) -> Gradients {
    return {dy, dy};
  });
  return {sum, record_norm(sum, normed, weight, bias)};
}

}  // namespace lockstep
