// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nn/module.h"
#include "tensor/ops.h"

namespace lockstep {

/// Layer normalisation over the last dimension (Ba et al. 2016); starts as the identity's scale, 1 and 0.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(int64_t columns, bool has_bias = true, DType dtype = DType::f32);

  Tensor operator()(const Tensor& x) const;
  /// x + branch and its norm.
  SumAndNorm add(const Tensor& x, const Tensor& branch) const;

 private:
  Tensor weight_;
  Tensor bias_;
};

}  // namespace lockstep
