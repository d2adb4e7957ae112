// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

// Initial values of parameters. All are functions of the seed and of a parameter's position in the list. So
// every rank computes the same values for any part of a parameter.

/// Returns initial values that are all `value`.
InitialValues constant_values(double value);
/// Returns N(mean, std^2). Element i is the one that fill_normal() draws.
InitialValues normal_values(double mean, double std, uint64_t seed, uint32_t stream_id);
/// Returns U(low, high). Element i is the one that fill_uniform() draws.
InitialValues uniform_values(double low, double high, uint64_t seed, uint32_t stream_id);

/// Returns true for the GPT's weights [inputs, outputs], as in transformers' Conv1D: c_attn, c_fc, c_proj.
bool is_in_out(const std::string& parameter);

/// Initializes parameters as GPT-2 does. Matrices are N(0, std^2) with std 0.02. For the matmuls that end a
/// residual branch ("c_proj.weight") std is divided by sqrt(2 * layers). Vectors keep the values of their
/// module: biases 0, norm weights 1. Element (out, in) of a weight is the same number in either order.
void initialize_like_gpt2(const std::vector<NamedTensor>& parameters, int64_t layers, uint64_t seed);

/// Initializes parameters as PyTorch's Linear: U(-1/sqrt(inputs), 1/sqrt(inputs)). A bias follows its weight.
void initialize_linears(const std::vector<NamedTensor>& parameters, uint64_t seed);

}  // namespace lockstep
