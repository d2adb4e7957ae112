// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep {

/// Returns true for GPT-2's weights [inputs, outputs], as in transformers' Conv1D: c_attn, c_fc, c_proj.
bool is_in_out(const std::string& parameter);

/// Initializes parameters as GPT-2 does. Matrices are N(0, std^2) with std 0.02. For the matmuls that end a
/// residual branch ("c_proj.weight") std is divided by sqrt(2 * layers). Vectors keep the values of their
/// module: biases 0, norm weights 1. Element (out, in) of a weight is the same number in either order.
void initialize_like_gpt2(const std::vector<NamedTensor>& parameters, int64_t layers, uint64_t seed);

}  // namespace lockstep
