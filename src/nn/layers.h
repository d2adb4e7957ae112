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

/// A normalization over the last dimension.
class Norm : public Module {
 public:
  virtual Tensor operator()(const Tensor& x) const = 0;
  /// Returns x + branch and its norm.
  virtual SumAndNorm add(const Tensor& x, const Tensor& branch) const = 0;
};

/// Layer normalization (Ba et al. 2016). The weight starts at 1 and the bias at 0.
class LayerNorm final : public Norm {
 public:
  explicit LayerNorm(int64_t columns, bool has_bias = true, DType dtype = DType::f32);

  Tensor operator()(const Tensor& x) const override;
  SumAndNorm add(const Tensor& x, const Tensor& branch) const override;

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

/// Adds the position of a token in its text to the token's vector.
class Positions : public Module {
 public:
  /// Adds the positions 0 to time - 1 to x, [batch, time, columns].
  virtual Tensor add(const Tensor& x) const = 0;
  /// Adds the positions `places`, i32 [tokens], to x, [tokens, columns].
  virtual Tensor add_at(const Tensor& x, const Tensor& places) const = 0;
};

/// A learned vector for each position: weight [positions, columns].
class LearnedPositions final : public Positions {
 public:
  LearnedPositions(int64_t positions, int64_t columns, DType dtype = DType::f32)
      : weight_(add_parameter("weight", {positions, columns}, dtype)) {}

  Tensor add(const Tensor& x) const override { return add_positions(x, weight_); }
  Tensor add_at(const Tensor& x, const Tensor& places) const override {
    return lockstep::add(x, embedding(places, weight_));
  }

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
