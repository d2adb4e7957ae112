// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/kernel.h"
#include "lockstep/kernels/query_key_value.h"
#include "lockstep/kernels/random.h"

namespace lockstep {

/// Causal self-attention per sample and query head: y = dropout(softmax(scale * q . k^T)) . v, scale =
/// 1 / sqrt(size). A query sees the keys up to its own position. The softmax is exact, in memory linear in
/// time (Rabe & Staats 2021). Entry b of the batch is sample s = key.sample + b. In its query head h, dropout
/// keeps weight (row, column) iff word >= round(65536 * dropout). Here word is 16-bit word column % 8 of
/// philox<7>(derive_key(key.seed, key.site, h), {column / 8, row, s, key.step}).
struct CausalAttentionForward {
  static constexpr const char* name = "causal_attention_forward";
  QueryKeyValue qkv = {};  ///< [batch, time, heads of each * size]
  View y = {};             ///< like q, contiguous
  View log_sum_exp =
      {};  ///< [batch, query heads, time]: ln of the sum of exp(scale * q . k); f32 for 16 bits
  AttentionHeads heads = {};
  double dropout = 0;  ///< probability in [0, 1); kept weights are scaled by 1 / (1 - dropout)
  RandomKey key = {};
  int64_t first_query = 0;  ///< y and log_sum_exp of earlier rows are not needed and may hold anything

  void check() const {
    qkv.check(3, heads);
    const Shape& shape = qkv.q.shape;
    const Shape statistics{shape[0], heads.queries, shape[1]};
    expect(y.shape == shape && y.dtype == qkv.dtype(), "y is ", y.shape, " ", y.dtype, ", q is ", shape, " ",
           qkv.dtype());
    expect(log_sum_exp.shape == statistics, "log_sum_exp is ", log_sum_exp.shape, ", not ", statistics);
    const DType statistic = accumulator_dtype(qkv.dtype());
    expect(log_sum_exp.dtype == statistic, "log_sum_exp is ", log_sum_exp.dtype, "; with ", qkv.dtype(),
           " queries, ", statistic, " is needed");
    expect(dropout >= 0 && dropout < 1, "the dropout probability is ", dropout, ", not in [0, 1)");
    expect(first_query >= 0 && first_query <= shape[1], "first_query is ", first_query,
           ", but must be at least 0 and at most ", shape[1]);
  }
};
int64_t scratch_bytes(CpuStream, const CausalAttentionForward&);
void run(CpuStream, const CausalAttentionForward&);
/// Runs f32, and on tensor cores bf16 and f16. The size of a head is at most 128. In 16 bits it is a multiple
/// of 8, and rows begin at multiples of 16 bytes.
void run(CudaStream, const CausalAttentionForward&);

/// The gradient of CausalAttentionForward, from its inputs and outputs. The softmax is recomputed (Dao et al.
/// 2022, appendix B.4). A gradient of a key or a value is one sum in the accumulator's dtype, rounded once.
/// The sum goes through the query heads of its group in ascending order, and in each through the queries.
struct CausalAttentionBackward {
  static constexpr const char* name = "causal_attention_backward";
  QueryKeyValue qkv = {};
  View y = {}, log_sum_exp = {};  ///< outputs of the forward, as qkv is its input
  View dy = {};                   ///< like y
  QueryKeyValue dqkv = {};        ///< like qkv, with strides of its own
  View dqkv_sum = {};  ///< optional, if dqkv is packed: the sums of its columns, in log_sum_exp's dtype
  AttentionHeads heads = {};  ///< heads, dropout and key must equal those of the forward
  double dropout = 0;
  RandomKey key = {};

  void check() const {
    CausalAttentionForward{qkv, y, log_sum_exp, heads, dropout, key}.check();
    expect(dy.shape == y.shape && dy.dtype == y.dtype, "dy is ", dy.shape, " ", dy.dtype, ", y is ", y.shape,
           " ", y.dtype);
    dqkv.check(3, heads, "d");
    expect(dqkv.q.shape == qkv.q.shape && dqkv.dtype() == qkv.dtype(), "dq is ", dqkv.q.shape, " ",
           dqkv.dtype(), ", q is ", qkv.q.shape, " ", qkv.dtype());
    if (!dqkv_sum) return;
    const View packed = dqkv.packed();
    expect(packed && dqkv_sum.size() == packed.shape[2] && dqkv_sum.dtype == log_sum_exp.dtype,
           "dqkv_sum is ", dqkv_sum.shape, " ", dqkv_sum.dtype, " for gradients ",
           packed ? packed.shape : dqkv.q.shape, packed ? "" : " that are not packed in one array");
  }
};
int64_t scratch_bytes(CpuStream, const CausalAttentionBackward&);
void run(CpuStream, const CausalAttentionBackward&);
void run(CudaStream, const CausalAttentionBackward&);

}  // namespace lockstep
