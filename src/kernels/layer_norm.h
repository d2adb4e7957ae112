// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/kernel.h"

namespace lockstep {

/// y = (x - mean) * rstd * weight + bias for every row. rstd = 1 / sqrt(variance + epsilon), with the biased
/// variance (Ba et al. 2016, eq. 3). The first pass computes the mean, the second the squares around it. With
/// `residual`, x + residual is rounded to the storage type and written to `sum`. Then this sum is normalised
/// instead of x. Without `mean` the mean is taken as 0: RMSNorm (Zhang & Sennrich 2019, eq. 4).
struct LayerNormForward {
  static constexpr const char* name = "layer_norm_forward";
  View x;              ///< [..., columns]
  View residual = {};  ///< like x, optional
  View weight;         ///< [columns]
  View bias = {};      ///< [columns], optional
  View sum = {};       ///< like x, given exactly if residual is; may alias x or residual
  View y;              ///< like x; may alias x or residual
  View mean = {};      ///< [rows], like rstd, optional; written for the backward
  View rstd;           ///< [rows], f32 for 16-bit x; written for the backward
  double epsilon = 1e-5;

  void check() const {
    expect(x.shape.rank() >= 1 && y.shape == x.shape, "y is ", y.shape, ", x is ", x.shape);
    expect(weight.size() == x.shape[-1] && (!bias || bias.size() == x.shape[-1]), "weight is ", weight.shape,
           ", bias is ", bias.shape, ", x is ", x.shape);
    expect((!mean || mean.size() == x.shape.rows()) && rstd.size() == x.shape.rows(), "mean is ", mean.shape,
           ", rstd is ", rstd.shape, ", x is ", x.shape);
    expect(static_cast<bool>(residual) == static_cast<bool>(sum), "residual and sum must be given together");
    for (const View* view : {&residual, &sum})
      expect(!*view || view->shape == x.shape, "residual is ", residual.shape, ", sum is ", sum.shape,
             ", x is ", x.shape);
    for (const View* view : {&residual, &weight, &bias, &sum, &y})
      expect(!*view || view->dtype == x.dtype, "all tensors must be ", x.dtype, ", like x");
    for (const View* view : {&mean, &rstd})
      expect(!*view || view->dtype == accumulator_dtype(x.dtype), "mean and rstd of ", x.dtype,
             " rows must be ", accumulator_dtype(x.dtype), ", not ", view->dtype);
  }
};
void run(CpuStream, const LayerNormForward&);
void run(CudaStream, const LayerNormForward&);

/// The gradients of x, weight and bias. `carried` is added to dx. Sums over rows run in blocks that depend
/// only on the shape.
struct LayerNormBackward {
  static constexpr const char* name = "layer_norm_backward";
  View x;             ///< [..., columns], the input of the forward
  View weight;        ///< [columns]
  View mean = {};     ///< [rows], of the forward; empty if the forward had none
  View rstd;          ///< [rows], of the forward
  View dy;            ///< like x
  View carried = {};  ///< like x, optional: the gradient that x has already received
  View dx;            ///< like x; may alias dy or carried
  View dweight;       ///< [columns], f32 for 16-bit x; overwritten
  View dbias = {};    ///< like dweight, optional
  View dx_sum = {};   ///< like dweight, optional: the sums of dx's columns, which are the gradient of a bias

  void check() const {
    expect(x.shape.rank() >= 1 && dy.shape == x.shape && dx.shape == x.shape, "dy is ", dy.shape, ", dx is ",
           dx.shape, ", x is ", x.shape);
    const int64_t columns = x.shape[-1];
    expect(weight.size() == columns && dweight.size() == columns && (!dbias || dbias.size() == columns),
           "weight is ", weight.shape, ", dweight is ", dweight.shape, ", dbias is ", dbias.shape, ", x is ",
           x.shape);
    expect((!mean || mean.size() == x.shape.rows()) && rstd.size() == x.shape.rows(), "mean is ", mean.shape,
           ", rstd is ", rstd.shape, ", x is ", x.shape);
    expect(!carried || carried.shape == x.shape, "carried is ", carried.shape, ", x is ", x.shape);
    for (const View* view : {&weight, &dy, &carried, &dx})
      expect(!*view || view->dtype == x.dtype, "all tensors must be ", x.dtype, ", like x");
    expect(!dx_sum || dx_sum.size() == columns, "dx_sum is ", dx_sum.shape, ", x is ", x.shape);
    for (const View* view : {&mean, &rstd, &dweight, &dbias, &dx_sum})
      expect(!*view || view->dtype == accumulator_dtype(x.dtype), "statistics and sums of ", x.dtype,
             " rows must be ", accumulator_dtype(x.dtype), ", not ", view->dtype);
  }
};
int64_t scratch_bytes(CpuStream, const LayerNormBackward&);
void run(CpuStream, const LayerNormBackward&);
void run(CudaStream, const LayerNormBackward&);

}  // namespace lockstep
