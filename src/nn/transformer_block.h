// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nn/key_value_cache.h"
#include "nn/layers.h"
#include "tensor/ops.h"

namespace lockstep {

/// Causal multi-head self-attention: one product for queries, keys and values, one for the output.
class CausalSelfAttention : public Module {
 public:
  CausalSelfAttention(int64_t width, int64_t heads, double dropout, bool has_bias, DType dtype);

  /// [batch, time, width] -> the same, plus `residual` unless it is empty. Attention weights are dropped
  /// under `site` of the context. Where it has a cache, x is [tokens, width]: those of its `places`.
  Tensor operator()(const Tensor& x, const Context& context, uint32_t site,
                    const Tensor& residual = {}) const;

 private:
  int64_t heads_;
  double dropout_;
  Linear query_key_value_;
  Linear output_;
};

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

/// What a model computes again in its backward instead of keeping it (Chen et al. 2016). No bit depends on
/// it.
struct Recompute {
  enum class What {
    none,
    attention,  ///< the attention branch of each block
    block,      ///< each block, of which its input is kept
    segments,   ///< runs of blocks: checkpoint_sequential()
  };
  What what = What::none;
  int64_t segments = 0;  ///< how many, where `what` says so
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
    bool recomputes_attention = false;  ///< in the backward, instead of keeping it
  };

  explicit TransformerBlock(const Options& options);

  /// [batch, time, width] -> the same.
  Tensor operator()(const Tensor& x, const Context& context) const;

 private:
  Tensor attend(const Tensor& x, const Context& context, uint32_t site, bool adds_x) const;

  Options options_;
  LayerNorm attention_norm_;
  CausalSelfAttention attention_;
  LayerNorm feed_forward_norm_;
  FeedForward feed_forward_;
};

}  // namespace lockstep
