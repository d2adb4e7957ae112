// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/gpt2/gpt2_block.h"

#include "lockstep/nn/layers.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {
namespace {

using Options = Gpt::Options;

/// One matmul for queries, keys and values, and one for the output.
class PackedSelfAttention final : public SelfAttention {
 public:
  explicit PackedSelfAttention(const Options& o)
      : heads_(o.heads),
        dropout_(o.dropout),
        query_key_value_(o.width, 3 * o.width, o.has_bias, o.dtype, WeightOrder::in_out),
        output_(o.width, o.width, o.has_bias, o.dtype, WeightOrder::in_out) {
    add_part("c_attn", query_key_value_);
    add_part("c_proj", output_);
  }

  Tensor operator()(const Tensor& x, const Context& context, uint32_t site,
                    const Tensor& residual) const override {
    const Tensor qkv = query_key_value_(x);
    if (context.cache) {
      KeyValueCache& cache = *context.cache;
      AttentionCache& kept = cache.layers[site];
      const int64_t size = qkv.shape()[-1] / (3 * heads_);
      if (!kept.keys)
        kept = make_kept_attention(cache.texts, cache.capacity, heads_, size, qkv.dtype(), qkv.stream());
      return output_(cached_attention(qkv, heads_, kept, cache.places), residual);
    }
    const double probability = context.training ? dropout_ : 0.0;
    return output_(causal_attention(qkv, heads_, probability, context.key(site)), residual);
  }

 private:
  int64_t heads_;
  double dropout_;
  Linear query_key_value_;
  Linear output_;
};

class GeluFeedForward final : public FeedForward {
 public:
  explicit GeluFeedForward(const Options& o)
      : activation_(o.activation),
        in_(o.width, 4 * o.width, o.has_bias, o.dtype, WeightOrder::in_out),
        out_(4 * o.width, o.width, o.has_bias, o.dtype, WeightOrder::in_out) {
    add_part("c_fc", in_);
    add_part("c_proj", out_);
  }

  Tensor operator()(const Tensor& x, const Tensor& residual) const override {
    return feed_forward(x, {in_.weight(), in_.bias(), out_.weight(), out_.bias()}, activation_, residual);
  }

 private:
  Gelu activation_;
  Linear in_;
  Linear out_;
};

TransformerBlock::Parts parts_of(const Options& o) {
  return {.attention_norm = std::make_unique<LayerNorm>(o.width, o.has_bias, o.dtype),
          .attention = std::make_unique<PackedSelfAttention>(o),
          .feed_forward_norm = std::make_unique<LayerNorm>(o.width, o.has_bias, o.dtype),
          .feed_forward = std::make_unique<GeluFeedForward>(o)};
}

}  // namespace

Gpt2Block::Gpt2Block(const Options& options, uint32_t layer)
    : TransformerBlock(parts_of(options), {"ln_1", "attn", "ln_2", "mlp"}, layer, options.dropout,
                       options.recompute.what == Recompute::What::attention) {}

}  // namespace lockstep
