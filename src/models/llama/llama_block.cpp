// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/llama/llama_block.h"

#include <memory>

#include "lockstep/nn/layers.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {
namespace {

/// Separate matmuls for queries, keys and values, whose heads are normalized (Qwen3) and rotated.
class RotaryAttention final : public SelfAttention {
 public:
  explicit RotaryAttention(const Llama::Options& o)
      : heads_(o.heads),
        size_(o.head_size),
        dropout_(o.dropout),
        query_(o.width, o.heads.queries * o.head_size, o.has_biases(), o.dtype),
        key_(o.width, o.heads.keys * o.head_size, o.has_biases(), o.dtype),
        value_(o.width, o.heads.keys * o.head_size, o.has_biases(), o.dtype),
        output_(o.heads.queries * o.head_size, o.width, false, o.dtype) {
    add_part("q_proj", query_);
    add_part("k_proj", key_);
    add_part("v_proj", value_);
    add_part("o_proj", output_);
    if (!o.has_head_norms()) return;
    query_norm_ = std::make_unique<RmsNorm>(o.head_size, o.epsilon, o.dtype);
    key_norm_ = std::make_unique<RmsNorm>(o.head_size, o.epsilon, o.dtype);
    add_part("q_norm", *query_norm_);
    add_part("k_norm", *key_norm_);
  }

  Tensor operator()(const Tensor& x, const Context& context, uint32_t site,
                    const Tensor& residual) const override {
    const Tensor q = rotated(query_(x), query_norm_.get(), context.angles);
    const Tensor k = rotated(key_(x), key_norm_.get(), context.angles);
    const Tensor v = value_(x);
    if (context.cache) {
      KeyValueCache& cache = *context.cache;
      AttentionCache& kept = cache.layers[site];
      if (!kept.keys)
        kept = make_kept_attention(cache.texts, cache.capacity, heads_, size_, q.dtype(), q.stream());
      return output_(cached_attention(q, k, v, heads_, kept, cache.places), residual);
    }
    const double probability = context.training ? dropout_ : 0.0;
    return output_(causal_attention(q, k, v, heads_, probability, context.key(site)), residual);
  }

 private:
  Tensor rotated(const Tensor& x, const RmsNorm* norm, const Tensor& angles) const {
    if (norm == nullptr) return rotate(x, angles);
    return rotate((*norm)(x.reshape({-1, size_})).reshape(x.shape()), angles);
  }

  AttentionHeads heads_;
  int64_t size_;
  double dropout_;
  Linear query_, key_, value_, output_;
  std::unique_ptr<RmsNorm> query_norm_, key_norm_;  ///< null without norms
};

class GatedFeedForward final : public FeedForward {
 public:
  explicit GatedFeedForward(const Llama::Options& o)
      : gate_(o.width, o.hidden, false, o.dtype),
        up_(o.width, o.hidden, false, o.dtype),
        down_(o.hidden, o.width, false, o.dtype) {
    add_part("gate_proj", gate_);
    add_part("up_proj", up_);
    add_part("down_proj", down_);
  }

  Tensor operator()(const Tensor& x, const Tensor& residual) const override {
    return down_(swiglu(gate_(x), up_(x)), residual);
  }

 private:
  Linear gate_, up_, down_;
};

TransformerBlock::Parts parts_of_llama_block(const Llama::Options& o) {
  return {.attention_norm = std::make_unique<RmsNorm>(o.width, o.epsilon, o.dtype),
          .attention = std::make_unique<RotaryAttention>(o),
          .feed_forward_norm = std::make_unique<RmsNorm>(o.width, o.epsilon, o.dtype),
          .feed_forward = std::make_unique<GatedFeedForward>(o)};
}

}  // namespace

LlamaBlock::LlamaBlock(const Llama::Options& options, uint32_t layer)
    : TransformerBlock(parts_of_llama_block(options),
                       {"input_layernorm", "self_attn", "post_attention_layernorm", "mlp"}, layer,
                       options.dropout, options.recompute.what == Recompute::What::attention) {}

}  // namespace lockstep
