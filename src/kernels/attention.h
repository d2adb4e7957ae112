// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/random.h"
#include "kernels/kernel.h"

namespace lockstep {

/// Causal self-attention: y = dropout(softmax(scale * q . k^T)) . v per sample and head, keys up to the
/// query's own position, scale = 1 / sqrt(size). Exact softmax in memory linear in time (Rabe & Staats 2021).
/// The weight (row, column) of head h of sample s = key.sample + b is kept iff the 16-bit word column % 8 of
/// philox<7>(derive_key(key.seed, key.site, h), {column / 8, row, s, key.step}) >= round(65536 * dropout).
struct CausalAttentionForward {
  static constexpr const char* name = "causal_attention_forward";
  View qkv = {};          ///< [batch, time, 3 * heads * size]: queries, keys, values, head-major inside each
  View y = {};            ///< [batch, time, heads * size]
  View log_sum_exp = {};  ///< [batch, heads, time]: ln of the sum of exp(scale * q . k); f32 beside 16 bits
  int64_t heads = 1;      ///< divides the columns of y
  double dropout = 0;     ///< probability in [0, 1); kept weights are scaled by 1 / (1 - dropout)
  RandomKey key = {};
  int64_t first_query = 0;  ///< y and log_sum_exp of earlier rows are not asked for and may hold anything

  void check() const {
    expect(qkv.shape.rank() == 3 && heads > 0 && qkv.shape[2] % (3 * heads) == 0, "qkv is ", qkv.shape,
           " for ", heads, " heads; [batch, time, 3 * heads * size] is needed");
    const Shape statistics{qkv.shape[0], heads, qkv.shape[1]};
    expect(y.shape == qkv.shape.with_last(qkv.shape[2] / 3), "y is ", y.shape, ", qkv is ", qkv.shape);
    expect(log_sum_exp.shape == statistics, "log_sum_exp is ", log_sum_exp.shape, ", not ", statistics);
    expect(qkv.dtype != DType::i32 && y.dtype == qkv.dtype, "y is ", y.dtype, ", qkv is ", qkv.dtype,
           "; both must be of one floating-point type");
    const DType statistic = accumulator_dtype(qkv.dtype);
    expect(log_sum_exp.dtype == statistic, "log_sum_exp is ", log_sum_exp.dtype, "; beside ", qkv.dtype, " ",
           statistic, " is needed");
    expect(dropout >= 0 && dropout < 1, "a dropout probability of ", dropout, ", not in [0, 1)");
    expect(first_query >= 0 && first_query <= qkv.shape[1], "the first query is ", first_query, " of ",
           qkv.shape[1]);
  }
};
int64_t scratch_bytes(CpuStream, const CausalAttentionForward&);
void run(CpuStream, const CausalAttentionForward&);
/// f32, and on tensor cores bf16 and f16; the size of a head is at most 128, in 16 bits a multiple of 8.
void run(CudaStream, const CausalAttentionForward&);

/// The gradient, from what the forward read and wrote; the softmax is recomputed (Dao et al. 2022, appendix
/// B.4).
struct CausalAttentionBackward {
  static constexpr const char* name = "causal_attention_backward";
  View qkv = {}, y = {}, log_sum_exp = {};  ///< of the forward
  View dy = {};                             ///< like y
  View dqkv = {};                           ///< like qkv
  int64_t heads = 1;                        ///< heads, dropout and key as in the forward
  double dropout = 0;
  RandomKey key = {};

  void check() const {
    CausalAttentionForward{qkv, y, log_sum_exp, heads, dropout, key}.check();
    expect(dy.shape == y.shape && dy.dtype == y.dtype, "dy is ", dy.shape, " ", dy.dtype, ", y is ", y.shape,
           " ", y.dtype);
    expect(dqkv.shape == qkv.shape && dqkv.dtype == qkv.dtype, "dqkv is ", dqkv.shape, " ", dqkv.dtype,
           ", qkv is ", qkv.shape, " ", qkv.dtype);
  }
};
int64_t scratch_bytes(CpuStream, const CausalAttentionBackward&);
void run(CpuStream, const CausalAttentionBackward&);
void run(CudaStream, const CausalAttentionBackward&);

}  // namespace lockstep
