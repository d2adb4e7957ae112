// SPDX-License-Identifier: Apache-2.0
#include "nn/layer_norm.h"

#include "tensor/create.h"

namespace lockstep {

LayerNorm::LayerNorm(int64_t columns, bool has_bias, DType dtype)
    : weight_(add_parameter("weight", {columns}, dtype)) {
  fill(weight_, 1.0);
  if (has_bias) bias_ = add_parameter("bias", {columns}, dtype);
}

Tensor LayerNorm::operator()(const Tensor& x) const { return layer_norm(x, weight_, bias_); }

SumAndNorm LayerNorm::add(const Tensor& x, const Tensor& branch) const {
  return add_layer_norm(x, branch, weight_, bias_);
}

}  // namespace lockstep
