// SPDX-License-Identifier: Apache-2.0
#include "kernels/layer_norm.h"

#include "tensor/create.h"
#include "tensor/ops.h"

namespace lockstep {

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon) {
  const Tensor y = empty_like(x);
  const Tensor mean = empty({x.shape().rows()}, x.dtype(), x.stream());
  const Tensor rstd = empty_like(mean);
  launch(x.stream(), LayerNormForward{.x = x.view(),
                                      .weight = weight.view(),
                                      .bias = bias.view(),
                                      .y = y.view(),
                                      .mean = mean.view(),
                                      .rstd = rstd.view(),
                                      .epsilon = epsilon});
  return record(
      "layer_norm", y, {x, weight, bias},
      [x = x.detach(), weight = weight.detach(), bias = bias.detach(), mean, rstd](const Tensor& dy) {
        const Tensor dx = empty_like(x), dweight = empty_like(weight);
        const Tensor dbias = bias ? empty_like(bias) : Tensor();
        launch(x.stream(), LayerNormBackward{.x = x.view(),
                                             .weight = weight.view(),
                                             .mean = mean.view(),
                                             .rstd = rstd.view(),
                                             .dy = dy.view(),
                                             .dx = dx.view(),
                                             .dweight = dweight.view(),
                                             .dbias = dbias.view()});
        return Gradients{dx, dweight, dbias};
      });
}

}  // namespace lockstep
