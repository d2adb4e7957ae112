// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nn/attention.h"
#include "nn/layer_norm.h"
#include "nn/linear.h"
#include "tensor/ops.h"

namespace lockstep {

/// The two products of a transformer's feed-forward branch with a GELU between them, four times as wide
/// inside.
class FeedForward : public Module {
 public:
  FeedForward(int64_t width, bool has_bias, Gelu activation, DType dtype);

  /// [..., width] -> the same, plus `residual` unless it is empty.
  Tensor operator()(const Tensor& x, const Tensor& residual = {}) const;

 private:
  Gelu activation_;
  Linear in_;
  Linear out_;
};

/// x + attention(norm(x)), then x + feed_forward(norm(x)).
class TransformerBlock : public Module {
 public:
  struct Options {
    uint32_t layer = 0;
    int64_t heads = 1;
    int64_t width = 0;
    double dropout = 0.0;
    bool has_bias = true;
    Gelu activation = Gelu::tanh;
    DType dtype = DType::f32;
  };

  explicit TransformerBlock(const Options& options);

  /// [batch, time, width] -> the same.
  Tensor operator()(const Tensor& x, const Context& context) const;

 private:
  Options options_;
  LayerNorm attention_norm_;
  CausalSelfAttention attention_;
  LayerNorm feed_forward_norm_;
  FeedForward feed_forward_;
};

}  // namespace lockstep
