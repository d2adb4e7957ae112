// SPDX-License-Identifier: Apache-2.0
#include "kernel_cases.h"
#include "lockstep/kernels/layer_norm.h"

namespace lockstep {
namespace {

struct NormOperands {
  NormOperands(NormKind kind, const Shape& shape, DType dtype)
      : x(random_tensor(shape, dtype)),
        weight(random_tensor({shape[-1]}, dtype)),
        y(empty(shape, dtype)),
        rstd(empty({shape.rows()}, accumulator_dtype(dtype))) {
    if (kind == NormKind::rms) return;
    bias = random_tensor({shape[-1]}, dtype);
    mean = empty(rstd.shape(), rstd.dtype());
  }

  LayerNormForward forward() const {
    return {.x = x.view(),
            .residual = {},
            .weight = weight.view(),
            .bias = bias.view(),
            .sum = {},
            .y = y.view(),
            .mean = mean.view(),
            .rstd = rstd.view()};
  }

  Tensor x, weight, y, rstd;
  Tensor bias, mean;  ///< empty for an RMS norm
};

}  // namespace

Work norm_forward(NormKind kind, const Shape& shape, DType dtype, bool has_residual) {
  const NormOperands with(kind, shape, dtype);
  LayerNormForward kernel = with.forward();
  std::vector<Tensor> operands{with.x, with.weight, with.y, with.rstd};
  if (kind == NormKind::layer) operands.insert(operands.end(), {with.bias, with.mean});
  if (has_residual) {
    operands.push_back(random_tensor(shape, dtype));
    kernel.residual = operands.back().view();
    operands.push_back(empty(shape, dtype));
    kernel.sum = operands.back().view();
  }
  return moving(kernel, operands);
}

Work norm_backward(NormKind kind, const Shape& shape, DType dtype, bool has_carried) {
  const NormOperands with(kind, shape, dtype);
  launch(current_stream(), with.forward());  // the backward reads its statistics
  const Tensor dy = random_tensor(shape, dtype), dx = empty(shape, dtype);
  const Tensor dweight = empty({shape[-1]}, accumulator_dtype(dtype));
  LayerNormBackward kernel{.x = with.x.view(),
                           .weight = with.weight.view(),
                           .mean = with.mean.view(),
                           .rstd = with.rstd.view(),
                           .dy = dy.view(),
                           .carried = {},
                           .dx = dx.view(),
                           .dweight = dweight.view(),
                           .dbias = {}};
  std::vector<Tensor> operands{with.x, with.weight, with.rstd, dy, dx, dweight};
  if (kind == NormKind::layer) {
    operands.insert(operands.end(), {with.mean, empty(dweight.shape(), dweight.dtype())});
    kernel.dbias = operands.back().view();
  }
  if (has_carried) {
    operands.push_back(random_tensor(shape, dtype));
    kernel.carried = operands.back().view();
  }
  return moving(kernel, operands);
}

}  // namespace lockstep
