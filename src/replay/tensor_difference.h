// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/parameters/placed_tensors.h"

namespace lockstep {

/// The first element with other bits in two copies of the tensors of a run.
struct TensorDifference {
  std::string tensor;    ///< "h.0.attn.c_attn.weight", or "h.0.attn.c_attn.weight.exp_avg" of an optimizer
  std::string element;   ///< its coordinates: "[3, 17]"
  std::string a, b;      ///< the bits, in hexadecimal
  int64_t elements = 0;  ///< how many differ in all tensors
  int64_t tensors = 0;   ///< how many tensors have one that differs
};

/// Compares the values and then the states of two copies that are held whole by this process. Returns nothing
/// if all bits are equal.
std::optional<TensorDifference> first_difference(const PlacedTensors& a, const PlacedTensors& b);

/// Describes a difference: "h.0.ln_1.weight [7] is 3f800000 in A and 3f800001 in B; 1 element ... differs".
std::string describe(const TensorDifference& difference, const std::string& a, const std::string& b);

}  // namespace lockstep
