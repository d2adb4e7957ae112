// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "nn/linear.h"

namespace lockstep {

/// What attention has read of one text, so that a model goes on without reading it again. Rows are kept as
/// products write them, queries too: then the kernels of a whole text serve for a part of it, bit for bit.
struct KeyValueCache {
  int64_t capacity;                      ///< tokens
  int64_t tokens = 0;                    ///< read so far
  std::map<uint32_t, Tensor> rows = {};  ///< [capacity, 3 * width] by the site of a layer's attention
};

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
