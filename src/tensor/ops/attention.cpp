// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include "kernels/cached_attention.h"
#include "tensor/create.h"
#include "tensor/ops.h"

namespace lockstep {

Tensor causal_attention(const Tensor& qkv, int64_t heads, double dropout, const RandomKey& key) {
  const Shape& shape = qkv.shape();
  expect(shape.rank() == 3 && heads > 0 && shape[2] % (3 * heads) == 0, "causal_attention: qkv is ", shape,
         " for ", heads, " heads; it must be [batch, time, 3 * heads * size]");
  const Tensor y = empty({shape[0], shape[1], shape[2] / 3}, qkv.dtype(), qkv.stream());
  const Tensor log_sum_exp = empty({shape[0], heads, shape[1]}, accumulator_dtype(qkv.dtype()), qkv.stream());
  launch(qkv.stream(), CausalAttentionForward{.qkv = qkv.view(),
                                              .y = y.view(),
                                              .log_sum_exp = log_sum_exp.view(),
                                              .heads = heads,
                                              .dropout = dropout,
                                              .key = key});
  return record("causal_attention", y, {qkv},
                [qkv = qkv.detach(), y = y.detach(), log_sum_exp, heads, dropout, key](
                    const Tensor& dy, GradientContext& context) {
                  const Tensor dqkv = empty_like(qkv), dqkv_sum = context.column_sum_memory(0);
                  launch(qkv.stream(), CausalAttentionBackward{.qkv = qkv.view(),
                                                               .y = y.view(),
                                                               .log_sum_exp = log_sum_exp.view(),
                                                               .dy = dy.view(),
                                                               .dqkv = dqkv.view(),
                                                               .dqkv_sum = dqkv_sum.view(),
                                                               .heads = heads,
                                                               .dropout = dropout,
                                                               .key = key});
                  return Gradients{dqkv};
                });
}

AttentionCache make_kept_attention(int64_t texts, int64_t tokens, int64_t heads, int64_t size, DType dtype,
                                   const Stream& stream) {
  constexpr int64_t panel = CachedAttention::panel;
  const auto whole_panels = [](int64_t count) { return (count + panel - 1) / panel * panel; };
  const int64_t capacity = whole_panels(tokens);
  return {.keys = empty({texts, heads, capacity / panel, size * panel}, dtype, stream),
          .values = empty({texts, heads, capacity, whole_panels(size)}, dtype, stream)};
}

Tensor cached_attention(const Tensor& qkv, int64_t heads, const AttentionCache& kept, const Tensor& places) {
  const Shape& shape = qkv.shape();
  expect(shape.rank() == 2 && heads > 0 && shape[1] % (3 * heads) == 0 && !is_recorded({qkv}),
         "cached_attention: qkv is ", shape, " for ", heads,
         " heads; it must be [tokens, 3 * heads * size] and require no gradient");
  const Tensor y = empty({shape[0], shape[1] / 3}, qkv.dtype(), qkv.stream());
  launch(qkv.stream(), CachedAttention{.qkv = qkv.view(),
                                       .keys = kept.keys.view(),
                                       .values = kept.values.view(),
                                       .places = places.view(),
                                       .y = y.view(),
                                       .heads = heads});
  return y;
}

}  // namespace lockstep
