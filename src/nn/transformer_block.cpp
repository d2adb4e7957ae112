// SPDX-License-Identifier: Apache-2.0
#include "nn/transformer_block.h"

#include "tensor/checkpoint.h"
#include "tensor/ops.h"

namespace lockstep {

FeedForward::FeedForward(int64_t width, bool has_bias, Gelu activation, DType dtype)
    : activation_(activation),
      in_(width, 4 * width, has_bias, dtype, WeightOrder::in_out),
      out_(4 * width, width, has_bias, dtype, WeightOrder::in_out) {
  add_part("c_fc", in_);
  add_part("c_proj", out_);
}

Tensor FeedForward::operator()(const Tensor& x, const Tensor& residual) const {
  return feed_forward(x, {in_.weight(), in_.bias(), out_.weight(), out_.bias()}, activation_, residual);
}

TransformerBlock::TransformerBlock(const Options& options)
    : options_(options),
      attention_norm_(options.width, options.has_bias, options.dtype),
      attention_(options.width, options.heads, options.dropout, options.has_bias, options.dtype),
      feed_forward_norm_(options.width, options.has_bias, options.dtype),
      feed_forward_(options.width, options.has_bias, options.activation, options.dtype) {
  add_part("ln_1", attention_norm_);
  add_part("attn", attention_);
  add_part("ln_2", feed_forward_norm_);
  add_part("mlp", feed_forward_);
}

Tensor TransformerBlock::operator()(const Tensor& x, const Context& context) const {
  const double probability = context.training ? options_.dropout : 0.0;
  // Site 0 is the embedding; each layer has three sites after it.
  const uint32_t site = 1 + 3 * options_.layer;
  if (probability == 0.0) {  // the matmuls add the residual
    const Tensor y = attend(x, context, site, true);
    return feed_forward_(feed_forward_norm_(y), y);
  }
  const Tensor attended = dropout(attend(x, context, site, false), probability, context.key(site + 1));
  const auto [y, normed] = feed_forward_norm_.add(x, attended);
  return add(y, dropout(feed_forward_(normed), probability, context.key(site + 2)));
}

Tensor TransformerBlock::attend(const Tensor& x, const Context& context, uint32_t site, bool adds_x) const {
  const auto branch = [this, context, site, adds_x](const std::vector<Tensor>& inputs) {
    return attention_(attention_norm_(inputs[0]), context, site, adds_x ? inputs[0] : Tensor());
  };
  return options_.recomputes_attention && context.training ? checkpoint(branch, {x}) : branch({x});
}

CausalSelfAttention::CausalSelfAttention(int64_t width, int64_t heads, double dropout, bool has_bias,
                                         DType dtype)
    : heads_(heads),
      dropout_(dropout),
      query_key_value_(width, 3 * width, has_bias, dtype, WeightOrder::in_out),
      output_(width, width, has_bias, dtype, WeightOrder::in_out) {
  add_part("c_attn", query_key_value_);
  add_part("c_proj", output_);
}

Tensor CausalSelfAttention::operator()(const Tensor& x, const Context& context, uint32_t site,
                                       const Tensor& residual) const {
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

}  // namespace lockstep
