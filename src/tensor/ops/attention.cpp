// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

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
                [qkv = qkv.detach(), y = y.detach(), log_sum_exp, heads, dropout, key](const Tensor& dy) {
                  const Tensor dqkv = empty_like(qkv);
                  launch(qkv.stream(), CausalAttentionBackward{.qkv = qkv.view(),
                                                               .y = y.view(),
                                                               .log_sum_exp = log_sum_exp.view(),
                                                               .dy = dy.view(),
                                                               .dqkv = dqkv.view(),
                                                               .heads = heads,
                                                               .dropout = dropout,
                                                               .key = key});
                  return Gradients{dqkv};
                });
}

Tensor continue_causal_attention(const Tensor& qkv, int64_t heads, const Tensor& text, int64_t past) {
  const Shape& shape = qkv.shape();
  expect(shape.rank() == 3 && shape[0] == 1 && !is_recorded({qkv}), "continue_causal_attention: qkv is ",
         shape, "; it must be [1, time, 3 * heads * size], and no gradient is computed");
  const int64_t columns = shape[2], end = past + shape[1];
  copy(qkv, text.slice(past, end).reshape(shape));
  const Tensor y = empty({1, end, columns / 3}, qkv.dtype(), qkv.stream());
  const Tensor log_sum_exp = empty({1, heads, end}, accumulator_dtype(qkv.dtype()), qkv.stream());
  launch(qkv.stream(), CausalAttentionForward{.qkv = text.slice(0, end).reshape({1, end, columns}).view(),
                                              .y = y.view(),
                                              .log_sum_exp = log_sum_exp.view(),
                                              .heads = heads,
                                              .first_query = past});
  return y.reshape({end, columns / 3}).slice(past, end).reshape({1, shape[1], columns / 3});
}

}  // namespace lockstep
