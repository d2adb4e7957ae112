// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

// Initial values of parameters. All are functions of the seed and of a parameter's position in the list. So
// every rank computes the same values for any part of a parameter.

/// Returns initial values that are all `value`.
InitialValues constant_values(double value);
/// Returns N(mean, std^2). Element i is the one that fill_normal() draws.
InitialValues normal_values(double mean, double std, uint64_t seed, uint32_t stream_id);
/// Returns normal_values() with mean 0 of a matrix [columns, rows], transposed to [rows, columns]: `shape`.
InitialValues transposed_normal_values(const Shape& shape, double std, uint64_t seed, uint32_t stream_id);
/// Returns U(low, high). Element i is the one that fill_uniform() draws.
InitialValues uniform_values(double low, double high, uint64_t seed, uint32_t stream_id);

/// Initializes parameters as PyTorch's Linear: U(-1/sqrt(inputs), 1/sqrt(inputs)). A bias follows its weight.
void initialize_linears(const std::vector<NamedTensor>& parameters, uint64_t seed);

}  // namespace lockstep
