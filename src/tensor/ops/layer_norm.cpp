// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/layer_norm.h"

#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {
namespace {

/// A kind of normalization and its parameters.
struct Norm {
  const char* name;
  bool is_centred;  ///< the mean is subtracted
  Tensor weight, bias;
  double epsilon;
};

/// Results of the forward that the gradient needs.
struct Normed {
  Tensor x, y, mean, rstd;
};

/// Normalizes x + branch if there is a branch. Else it normalizes x.
Normed normalize(const Norm& norm, const Tensor& x, const Tensor& branch) {
  Normed result{.x = branch ? empty_like(x) : x.detach(), .y = empty_like(x), .mean = {}, .rstd = {}};
  result.rstd = empty({x.shape().rows()}, accumulator_dtype(x.dtype()), x.stream());
  if (norm.is_centred) result.mean = empty_like(result.rstd);
  launch(x.stream(), LayerNormForward{.x = x.view(),
                                      .residual = branch.view(),
                                      .weight = norm.weight.operand(x.dtype()),
                                      .bias = norm.bias.operand(x.dtype()),
                                      .sum = branch ? result.x.view() : View{},
                                      .y = result.y.view(),
                                      .mean = result.mean.view(),
                                      .rstd = result.rstd.view(),
                                      .epsilon = norm.epsilon});
  return result;
}

/// Puts the norm of `x` on the tape. In the same pass the backward adds the gradient that x has already
/// received. In a residual stream x has one.
Tensor record_norm(const Norm& norm, const Tensor& x, const Normed& normed) {
  const auto& [name, is_centred, weight, bias, epsilon] = norm;
  return record(name, normed.y, {x, weight, bias},
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

Tensor norm_of(const Norm& norm, const Tensor& x) { return record_norm(norm, x, normalize(norm, x, {})); }

SumAndNorm norm_of_sum(const Norm& norm, const Tensor& x, const Tensor& branch) {
  expect(branch.shape() == x.shape(), "add_", norm.name, ": branch is ", branch.shape(), ", x is ",
         x.shape());
  const Normed normed = normalize(norm, x, branch);
  const Tensor sum = record("add", normed.x, {x, branch}, [](const Tensor& dy) -> Gradients {
    return {dy, dy};
  });
  return {sum, record_norm(norm, sum, normed)};
}

Norm layer_norm_of(const Tensor& weight, const Tensor& bias, double epsilon) {
  return {.name = "layer_norm", .is_centred = true, .weight = weight, .bias = bias, .epsilon = epsilon};
}

Norm rms_norm_of(const Tensor& weight, double epsilon) {
  return {.name = "rms_norm", .is_centred = false, .weight = weight, .bias = {}, .epsilon = epsilon};
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon) {
  const OperationScope operation("layer_norm");
  return norm_of(layer_norm_of(weight, bias, epsilon), x);
}

SumAndNorm add_layer_norm(const Tensor& x, const Tensor& branch, const Tensor& weight, const Tensor& bias,
                          double epsilon) {
  const OperationScope operation("add_layer_norm");
  return norm_of_sum(layer_norm_of(weight, bias, epsilon), x, branch);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double epsilon) {
  const OperationScope operation("rms_norm");
  return norm_of(rms_norm_of(weight, epsilon), x);
}

SumAndNorm add_rms_norm(const Tensor& x, const Tensor& branch, const Tensor& weight, double epsilon) {
  const OperationScope operation("add_rms_norm");
  return norm_of_sum(rms_norm_of(weight, epsilon), x, branch);
}

}  // namespace lockstep
