// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>

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

/// The self-attention branch of a block.
class SelfAttention : public Module {
 public:
  /// Maps [batch, time, width] to the same shape and adds `residual` unless it is empty. `site` keys the
  /// dropout of attention weights. With a cache, x is [tokens, width]: the tokens of the cache's `places`.
  virtual Tensor operator()(const Tensor& x, const Context& context, uint32_t site,
                            const Tensor& residual) const = 0;
};

/// The feed-forward branch of a block.
class FeedForward : public Module {
 public:
  /// Maps [..., width] to the same shape and adds `residual` unless it is empty.
  virtual Tensor operator()(const Tensor& x, const Tensor& residual) const = 0;
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

/// A block: x + attention(norm(x)), then x + feed_forward(norm(x)). A family of models chooses its parts.
class TransformerBlock : public Module {
 public:
  struct Parts {
    std::unique_ptr<Norm> attention_norm;
    std::unique_ptr<SelfAttention> attention;
    std::unique_ptr<Norm> feed_forward_norm;
    std::unique_ptr<FeedForward> feed_forward;
  };
  /// The names of the parts, in the order of Parts.
  using Names = std::array<const char*, 4>;

  /// `layer` keys random draws. `dropout` is that of the residual branches.
  TransformerBlock(Parts parts, const Names& names, uint32_t layer, double dropout,
                   bool recomputes_attention);

  /// Maps [batch, time, width] to the same shape.
  Tensor operator()(const Tensor& x, const Context& context) const;

 private:
  Tensor attend(const Tensor& x, const Context& context, uint32_t site, bool adds_x) const;

  Parts parts_;
  uint32_t layer_;
  double dropout_;
  bool recomputes_attention_;  ///< in the backward, instead of storing it
};

}  // namespace lockstep
