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

}  // namespace lockstep
