// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>

#include "nn/layers.h"
#include "tensor/ops.h"

namespace lockstep {

/// Keys and values of attention, with which a model continues texts without reading them again.
struct KeyValueCache {
  int64_t texts = 1;
  int64_t capacity = 0;                            ///< tokens per text
  std::map<uint32_t, AttentionCache> layers = {};  ///< key: the site of a layer's attention
  Tensor places = {};                              ///< current tokens, as in cached_attention()
};

/// Causal multi-head self-attention: one matmul for queries, keys and values and one for the output.
class CausalSelfAttention : public Module {
 public:
  CausalSelfAttention(int64_t width, int64_t heads, double dropout, bool has_bias, DType dtype);

  /// Maps [batch, time, width] to the same shape and adds `residual` unless it is empty. `site` keys the
  /// dropout of attention weights. With a cache, x is [tokens, width]: the tokens of the cache's `places`.
  Tensor operator()(const Tensor& x, const Context& context, uint32_t site,
                    const Tensor& residual = {}) const;

 private:
  int64_t heads_;
  double dropout_;
  Linear query_key_value_;
  Linear output_;
};

/// The feed-forward branch of a transformer: two linear layers, with a GELU and four times the width between.
class FeedForward : public Module {
 public:
  FeedForward(int64_t width, bool has_bias, Gelu activation, DType dtype);

  /// Maps [..., width] to the same shape and adds `residual` unless it is empty.
  Tensor operator()(const Tensor& x, const Tensor& residual = {}) const;

 private:
  Gelu activation_;
  Linear in_;
  Linear out_;
};

/// Activations that the backward recomputes (Chen et al. 2016). Results do not depend on the choice.
struct Recompute {
  enum class What {
    none,
    attention,  ///< the attention branch of each block
    block,      ///< each block; only its input is kept
    segments,   ///< runs of blocks: checkpoint_sequential()
  };
  What what = What::none;
  int64_t segments = 0;  ///< number of runs for What::segments

  bool operator==(const Recompute&) const = default;
};

/// A block: x + attention(norm(x)), then x + feed_forward(norm(x)).
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
    bool recomputes_attention = false;  ///< in the backward, instead of storing it
  };

  explicit TransformerBlock(const Options& options);

  /// Maps [batch, time, width] to the same shape.
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
