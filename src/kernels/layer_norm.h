// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/kernel.h"

namespace lockstep {

/// y = (x - mean) * rstd * weight + bias for every row, rstd = 1 / sqrt(variance + epsilon), biased variance
/// (Ba et al. 2016, eq. 3). Two passes: the mean first, then the squares around it.
struct LayerNormForward {
  static constexpr const char* name = "layer_norm_forward";
  View x;       ///< [..., columns]
  View weight;  ///< [columns]
  View bias;    ///< [columns], optional
  View y;       ///< like x; may alias x
  View mean;    ///< [rows], written for the backward
  View rstd;    ///< [rows], written for the backward
  double epsilon = 1e-5;

  void check() const {
    expect(x.shape.rank() >= 1 && y.shape == x.shape, "y is ", y.shape, ", x is ", x.shape);
    expect(weight.size() == x.shape[-1] && (!bias || bias.size() == x.shape[-1]), "weight is ", weight.shape,
           ", bias is ", bias.shape, ", x is ", x.shape);
    expect(mean.size() == x.shape.rows() && rstd.size() == x.shape.rows(), "mean is ", mean.shape,
           ", rstd is ", rstd.shape, ", x is ", x.shape);
    for (const View* view : {&weight, &y, &mean, &rstd})
      expect(view->dtype == x.dtype && (!bias || bias.dtype == x.dtype), "all tensors are ", x.dtype,
             " or none");
  }
};
void run(CpuStream, const LayerNormForward&);
void run(CudaStream, const LayerNormForward&);

/// The gradients of x, weight and bias; sums over rows run in blocks whose size is fixed.
struct LayerNormBackward {
  static constexpr const char* name = "layer_norm_backward";
  View x;        ///< [..., columns], the input of the forward
  View weight;   ///< [columns]
  View mean;     ///< [rows], of the forward
  View rstd;     ///< [rows], of the forward
  View dy;       ///< like x
  View dx;       ///< like x; may alias dy
  View dweight;  ///< [columns], overwritten
  View dbias;    ///< [columns], overwritten; optional

  void check() const {
    expect(x.shape.rank() >= 1 && dy.shape == x.shape && dx.shape == x.shape, "dy is ", dy.shape, ", dx is ",
           dx.shape, ", x is ", x.shape);
    const int64_t columns = x.shape[-1];
    expect(weight.size() == columns && dweight.size() == columns && (!dbias || dbias.size() == columns),
           "weight is ", weight.shape, ", dweight is ", dweight.shape, ", dbias is ", dbias.shape, ", x is ",
           x.shape);
    expect(mean.size() == x.shape.rows() && rstd.size() == x.shape.rows(), "mean is ", mean.shape,
           ", rstd is ", rstd.shape, ", x is ", x.shape);
    for (const View* view : {&weight, &mean, &rstd, &dy, &dx, &dweight})
      expect(view->dtype == x.dtype && (!dbias || dbias.dtype == x.dtype), "all tensors are ", x.dtype,
             " or none");
  }
};
void run(CpuStream, const LayerNormBackward&);
void run(CudaStream, const LayerNormBackward&);

}  // namespace lockstep
