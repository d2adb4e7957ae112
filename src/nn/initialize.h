// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nn/module.h"

namespace lockstep {

// Initial values are functions of the seed and of a parameter's place in the list, so every rank makes the
// same.

/// True for the weights of a GPT's products, which lie [inputs, outputs] as transformers' Conv1D keeps them:
/// c_attn, c_fc and c_proj.
bool is_in_out(const std::string& parameter);

/// GPT-2's: N(0, 0.02) for matrices, scaled by 1/sqrt(2 * layers) for the products that end a residual branch
/// ("c_proj.weight"); biases 0; norm weights 1. Vectors keep what their module gave them. Element (out, in)
/// of a weight is the same number in either order.
void initialize_like_gpt2(const std::vector<NamedTensor>& parameters, int64_t layers, uint64_t seed);

/// PyTorch's default for Linear: U(-1/sqrt(inputs), 1/sqrt(inputs)) for weight and bias, where each bias
/// follows its weight.
void initialize_linears(const std::vector<NamedTensor>& parameters, uint64_t seed);

}  // namespace lockstep
