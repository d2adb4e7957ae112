// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nn/linear.h"

namespace lockstep {

/// Causal multi-head self-attention: one product for queries, keys and values, one for the output.
class CausalSelfAttention : public Module {
 public:
  CausalSelfAttention(int64_t width, int64_t heads, double dropout, bool has_bias, DType dtype);

  /// [batch, time, width] -> the same, plus `residual` unless it is empty. Attention weights are dropped
  /// under `site` of the context.
  Tensor operator()(const Tensor& x, const Context& context, uint32_t site,
                    const Tensor& residual = {}) const;

 private:
  int64_t heads_;
  double dropout_;
  Linear query_key_value_;
  Linear output_;
};

}  // namespace lockstep
