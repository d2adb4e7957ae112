// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/kernel.h"
#include "kernels/random.h"

namespace lockstep {

/// Causal self-attention per sample and head: y = dropout(softmax(scale * q . k^T)) . v, scale =
/// 1 / sqrt(size). A query sees the keys up to its own position. The softmax is exact, in memory linear in
/// time (Rabe & Staats 2021). Entry b of the batch is sample s = key.sample + b. In its head h, dropout keeps
/// weight (row, column) iff word >= round(65536 * dropout). Here word is 16-bit word column % 8 of
/// philox<7>(derive_key(key.seed, key.site, h), {column / 8, row, s, key.step}).
struct CausalAttentionForward {
  static constexpr const char* name = "causal_attention_forward";
  View qkv = {};          ///< [batch, time, 3 * heads * size]: queries, keys, values, head-major inside each
  View y = {};            ///< [batch, time, heads * size]
  View log_sum_exp = {};  ///< [batch, heads, time]: ln of the sum of exp(scale * q . k); f32 for 16-bit qkv
  int64_t heads = 1;      ///< divides the columns of y
  double dropout = 0;     ///< probability in [0, 1); kept weights are scaled by 1 / (1 - dropout)
  RandomKey key = {};
  int64_t first_query = 0;  ///< y and log_sum_exp of earlier rows are not needed and may hold anything

  void check() const {
    expect(qkv.shape.rank() == 3 && heads > 0 && qkv.shape[2] % (3 * heads) == 0, "qkv is ", qkv.shape,
           " for ", heads, " heads; [batch, time, 3 * heads * size] is needed");
    const Shape statistics{qkv.shape[0], heads, qkv.shape[1]};
    expect(y.shape == qkv.shape.with_last(qkv.shape[2] / 3), "y is ", y.shape, ", qkv is ", qkv.shape);
    expect(log_sum_exp.shape == statistics, "log_sum_exp is ", log_sum_exp.shape, ", not ", statistics);
    expect(qkv.dtype != DType::i32 && y.dtype == qkv.dtype, "y is ", y.dtype, ", qkv is ", qkv.dtype,
           "; both must be of one floating-point type");
    const DType statistic = accumulator_dtype(qkv.dtype);
    expect(log_sum_exp.dtype == statistic, "log_sum_exp is ", log_sum_exp.dtype, "; with ", qkv.dtype,
           " qkv, ", statistic, " is needed");
    expect(dropout >= 0 && dropout < 1, "the dropout probability is ", dropout, ", not in [0, 1)");
    expect(first_query >= 0 && first_query <= qkv.shape[1], "first_query is ", first_query,
           ", but must be at least 0 and at most ", qkv.shape[1]);
  }
};
int64_t scratch_bytes(CpuStream, const CausalAttentionForward&);
void run(CpuStream, const CausalAttentionForward&);
/// Runs f32, and on tensor cores bf16 and f16. The size of a head is at most 128, and a multiple of 8 in 16
/// bits.
void run(CudaStream, const CausalAttentionForward&);

/// The gradient of CausalAttentionForward, from its inputs and outputs. The softmax is recomputed (Dao et al.
/// 2022, appendix B.4).
struct CausalAttentionBackward {
  static constexpr const char* name = "causal_attention_backward";
  View qkv = {}, y = {}, log_sum_exp = {};  ///< inputs and outputs of the forward
  View dy = {};                             ///< like y
  View dqkv = {};                           ///< like qkv
  View dqkv_sum = {};  ///< optional, [3 * heads * size], like log_sum_exp: the sums of dqkv's columns
  int64_t heads = 1;   ///< heads, dropout and key must equal those of the forward
  double dropout = 0;
  RandomKey key = {};

  void check() const {
    CausalAttentionForward{qkv, y, log_sum_exp, heads, dropout, key}.check();
    expect(dy.shape == y.shape && dy.dtype == y.dtype, "dy is ", dy.shape, " ", dy.dtype, ", y is ", y.shape,
           " ", y.dtype);
    expect(dqkv.shape == qkv.shape && dqkv.dtype == qkv.dtype, "dqkv is ", dqkv.shape, " ", dqkv.dtype,
           ", qkv is ", qkv.shape, " ", qkv.dtype);
    expect(!dqkv_sum || (dqkv_sum.size() == qkv.shape[2] && dqkv_sum.dtype == log_sum_exp.dtype),
           "dqkv_sum is ", dqkv_sum.shape, " ", dqkv_sum.dtype, ", qkv is ", qkv.shape, " ", qkv.dtype);
  }
};
int64_t scratch_bytes(CpuStream, const CausalAttentionBackward&);
void run(CpuStream, const CausalAttentionBackward&);
void run(CudaStream, const CausalAttentionBackward&);

}  // namespace lockstep
