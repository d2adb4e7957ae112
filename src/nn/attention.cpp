// SPDX-License-Identifier: Apache-2.0
#include "nn/attention.h"

#include "tensor/create.h"
#include "tensor/ops.h"

namespace lockstep {

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
    Tensor& rows = context.cache->rows[site];
    if (!rows) rows = empty({context.cache->capacity, qkv.shape()[2]}, qkv.dtype(), qkv.stream());
    return output_(continue_causal_attention(qkv, heads_, rows, context.cache->tokens), residual);
  }
  const double probability = context.training ? dropout_ : 0.0;
  return output_(causal_attention(qkv, heads_, probability, context.key(site)), residual);
}

}  // namespace lockstep
