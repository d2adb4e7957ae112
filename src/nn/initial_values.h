// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

// What parameters begin with. All are functions of the seed and of a parameter's place in the list, so every
// rank makes the same, whatever part of a parameter it makes.

/// The same value everywhere.
InitialValues constant_values(double value);
/// N(mean, std^2) and U(low, high), element i as fill_normal() and fill_uniform() draw it.
InitialValues normal_values(double mean, double std, uint64_t seed, uint32_t stream_id);
InitialValues uniform_values(double low, double high, uint64_t seed, uint32_t stream_id);

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
