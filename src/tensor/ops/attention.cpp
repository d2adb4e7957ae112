// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/attention.h"

#include "lockstep/kernels/cached_attention.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {
namespace {

/// One call of causal_attention(). The gradient keeps it, so its tensors stay off the tape.
struct Attended {
  AttentionHeads heads;
  double dropout;
  RandomKey key;
  Stream stream;
  Tensor y, log_sum_exp;

  Attended(const QueryKeyValue& qkv, const Stream& on, const AttentionHeads& of, double probability,
           const RandomKey& draws)
      : heads(of), dropout(probability), key(draws), stream(on) {
    qkv.check(3, heads);
    const Shape& shape = qkv.q.shape;
    y = empty(shape, qkv.dtype(), stream);
    log_sum_exp = empty({shape[0], heads.queries, shape[1]}, accumulator_dtype(qkv.dtype()), stream);
    launch(stream, CausalAttentionForward{.qkv = qkv,
                                          .y = y.view(),
                                          .log_sum_exp = log_sum_exp.view(),
                                          .heads = heads,
                                          .dropout = dropout,
                                          .key = key});
  }

  void differentiate(const QueryKeyValue& qkv, const Tensor& dy, const QueryKeyValue& dqkv,
                     const View& dqkv_sum = {}) const {
    launch(stream, CausalAttentionBackward{.qkv = qkv,
                                           .y = y.view(),
                                           .log_sum_exp = log_sum_exp.view(),
                                           .dy = dy.view(),
                                           .dqkv = dqkv,
                                           .dqkv_sum = dqkv_sum,
                                           .heads = heads,
                                           .dropout = dropout,
                                           .key = key});
  }
};

Tensor attend_to_cache(const QueryKeyValue& qkv, const AttentionHeads& heads, const AttentionCache& kept,
                       const Tensor& places) {
  qkv.check(2, heads);
  const Tensor y = empty(qkv.q.shape, qkv.dtype(), places.stream());
  launch(places.stream(), CachedAttention{.qkv = qkv,
                                          .keys = kept.keys.view(),
                                          .values = kept.values.view(),
                                          .places = places.view(),
                                          .y = y.view(),
                                          .heads = heads});
  return y;
}

void expect_not_recorded(const std::vector<Tensor>& inputs) {
  expect(!is_recorded(inputs), "cached_attention: queries, keys and values must require no gradient");
}

}  // namespace

Tensor causal_attention(const Tensor& qkv, const AttentionHeads& heads, double dropout,
                        const RandomKey& key) {
  const OperationScope operation("causal_attention");
  const Attended call(unpack_heads(qkv.view(), heads), qkv.stream(), heads, dropout, key);
  return record("causal_attention", call.y.detach(), {qkv},
                [qkv = qkv.detach(), call](const Tensor& dy, GradientContext& context) {
                  const Tensor dqkv = empty_like(qkv), dqkv_sum = context.column_sum_memory(0);
                  call.differentiate(unpack_heads(qkv.view(), call.heads), dy,
                                     unpack_heads(dqkv.view(), call.heads), dqkv_sum.view());
                  return Gradients{dqkv};
                });
}

Tensor causal_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionHeads& heads,
                        double dropout, const RandomKey& key) {
  const OperationScope operation("causal_attention");
  const Attended call({q.view(), k.view(), v.view()}, q.stream(), heads, dropout, key);
  return record("causal_attention", call.y.detach(), {q, k, v},
                [q = q.detach(), k = k.detach(), v = v.detach(), call](const Tensor& dy) {
                  const Tensor dq = empty_like(q), dk = empty_like(k), dv = empty_like(v);
                  call.differentiate({q.view(), k.view(), v.view()}, dy, {dq.view(), dk.view(), dv.view()});
                  return Gradients{dq, dk, dv};
                });
}

AttentionCache make_kept_attention(int64_t texts, int64_t tokens, const AttentionHeads& heads, int64_t size,
                                   DType dtype, const Stream& stream) {
  constexpr int64_t panel = CachedAttention::panel;
  const int64_t capacity = CachedAttention::whole_panels(tokens);
  return {.keys = empty({texts, heads.keys, capacity / panel, size * panel}, dtype, stream),
          .values = empty({texts, heads.keys, capacity, CachedAttention::whole_panels(size)}, dtype, stream)};
}

Tensor cached_attention(const Tensor& qkv, const AttentionHeads& heads, const AttentionCache& kept,
                        const Tensor& places) {
  const OperationScope operation("cached_attention");
  expect_not_recorded({qkv});
  return attend_to_cache(unpack_heads(qkv.view(), heads), heads, kept, places);
}

Tensor cached_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionHeads& heads,
                        const AttentionCache& kept, const Tensor& places) {
  const OperationScope operation("cached_attention");
  expect_not_recorded({q, k, v});
  return attend_to_cache({q.view(), k.view(), v.view()}, heads, kept, places);
}

}  // namespace lockstep
