// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "nn/module.h"
#include "tensor/ops.h"

namespace lockstep {

/// y = x . weight^T + bias; weight [outputs, inputs], or the other way round (WeightOrder), bias [outputs]
/// unless it is left out.
class Linear : public Module {
 public:
  Linear(int64_t inputs, int64_t outputs, bool has_bias = true, DType dtype = DType::f32,
         WeightOrder order = WeightOrder::out_in);

  /// [..., inputs] -> [..., outputs], plus `residual` of that shape unless it is empty.
  Tensor operator()(const Tensor& x, const Tensor& residual = {}) const;
  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }

 private:
  WeightOrder order_;
  Tensor weight_;
  Tensor bias_;
};

/// Layer normalisation over the last dimension (Ba et al. 2016); starts as the identity's scale, 1 and 0.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(int64_t columns, bool has_bias = true, DType dtype = DType::f32);

  Tensor operator()(const Tensor& x) const;
  /// x + branch and its norm.
  SumAndNorm add(const Tensor& x, const Tensor& branch) const;

 private:
  Tensor weight_;
  Tensor bias_;
};

/// A table of vectors, one a row: weight [rows, columns].
class Embedding : public Module {
 public:
  Embedding(int64_t rows, int64_t columns, DType dtype = DType::f32)
      : weight_(add_parameter("weight", {rows, columns}, dtype)) {}

  const Tensor& weight() const { return weight_; }

 private:
  Tensor weight_;
};

/// Fully connected layers of these widths with ReLU between them; {20, 1} is one Linear(20, 1). Where its
/// parameters have copies in 16 bits (ParameterSpace::set_precision), the layers compute in these, and what
/// comes in and goes out stays f32: unlike under PyTorch's autocast, a loss needs no conversion.
class Mlp : public Module {
 public:
  explicit Mlp(const std::vector<int64_t>& widths);

  /// [batch, widths.front()] -> [batch, widths.back()], in the dtype of x.
  Tensor operator()(const Tensor& x) const;

 private:
  std::vector<std::unique_ptr<Linear>> layers_;
};

}  // namespace lockstep
