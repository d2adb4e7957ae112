// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep {

// Initial values of parameters. Random ones are functions of a seed and of a parameter's place in its model.
// So every rank computes the same values for any part of a parameter. Without a seed, the ParameterSpace of
// the model gives its own. A parameter that is read before it is in a space takes the seed 0.

/// Returns initial values that are all `value`.
InitialValues constant_values(double value);
/// Returns N(mean, std^2), to be drawn with the seed of the model's ParameterSpace.
InitialValues normal_values(double mean, double std);
/// Returns N(mean, std^2). Element i is the one that fill_normal() draws.
InitialValues normal_values(double mean, double std, uint64_t seed, uint32_t stream_id);
/// Returns normal_values() with mean 0 of a matrix [columns, rows], transposed to [rows, columns]: `shape`.
InitialValues transposed_normal_values(const Shape& shape, double std, uint64_t seed, uint32_t stream_id);
/// Returns U(low, high), to be drawn with the seed of the model's ParameterSpace.
InitialValues uniform_values(double low, double high);
/// Returns U(low, high). Element i is the one that fill_uniform() draws.
InitialValues uniform_values(double low, double high, uint64_t seed, uint32_t stream_id);
/// Returns the values of PyTorch's Linear, weights and biases: U(-1/sqrt(inputs), 1/sqrt(inputs)).
InitialValues linear_values(int64_t inputs);

/// Draws the random initial values of these parameters with a seed of their own instead of their space's.
/// Values that are given, such as the ones of norms, do not change.
void initialize(const std::vector<NamedTensor>& parameters, uint64_t seed);

}  // namespace lockstep
