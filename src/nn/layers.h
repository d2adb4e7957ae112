// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "nn/module.h"
#include "tensor/ops.h"

namespace lockstep {

/// A linear layer, y = x . weight^T + bias. `weight` is [outputs, inputs], or [inputs, outputs] for
/// WeightOrder::in_out. `bias` is [outputs] and optional.
class Linear : public Module {
 public:
  Linear(int64_t inputs, int64_t outputs, bool has_bias = true, DType dtype = DType::f32,
         WeightOrder order = WeightOrder::out_in);

  /// Maps [..., inputs] to [..., outputs] and adds `residual` of that shape unless it is empty.
  Tensor operator()(const Tensor& x, const Tensor& residual = {}) const;
  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }

 private:
  WeightOrder order_;
  Tensor weight_;
  Tensor bias_;
};

/// Layer normalization over the last dimension (Ba et al. 2016). The weight starts at 1 and the bias at 0.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(int64_t columns, bool has_bias = true, DType dtype = DType::f32);

  Tensor operator()(const Tensor& x) const;
  /// Returns x + branch and its norm.
  SumAndNorm add(const Tensor& x, const Tensor& branch) const;

 private:
  Tensor weight_;
  Tensor bias_;
};

/// A table of vectors, one per row: weight [rows, columns].
class Embedding : public Module {
 public:
  Embedding(int64_t rows, int64_t columns, DType dtype = DType::f32)
      : weight_(add_parameter("weight", {rows, columns}, dtype)) {}

  const Tensor& weight() const { return weight_; }

 private:
  Tensor weight_;
};

/// Fully connected layers of these widths with ReLU between them; {20, 1} is one Linear(20, 1). If its
/// parameters have 16-bit copies (ParameterSpace::set_precision), the layers compute in 16 bits. Input and
/// output stay f32. Unlike under PyTorch's autocast, a loss needs no conversion.
class Mlp : public Module {
 public:
  explicit Mlp(const std::vector<int64_t>& widths);

  /// Maps [batch, widths.front()] to [batch, widths.back()], in the dtype of x.
  Tensor operator()(const Tensor& x) const;

 private:
  std::vector<std::unique_ptr<Linear>> layers_;
};

}  // namespace lockstep
