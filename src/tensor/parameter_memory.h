// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "lockstep/core/dtype.h"
#include "lockstep/tensor/range.h"

namespace lockstep::detail {

/// Interface of tensors to the memory of a model's parameter values. A parameter tensor stores its place in
/// the flat space and asks for memory whenever an operation reads it.
class ParameterMemory {
 public:
  ParameterMemory() = default;
  virtual ~ParameterMemory() = default;
  ParameterMemory(const ParameterMemory&) = delete;
  ParameterMemory& operator=(const ParameterMemory&) = delete;

  /// Returns memory in which the next kernel to be launched can read the elements `place` in `dtype`. Throws
  /// Error if they are not available and cannot be gathered.
  virtual std::byte* find(Range place, DType dtype) = 0;
  /// Returns the dtype in which the model computes.
  virtual DType compute_dtype() const = 0;

  bool gradients_are_whole = true;
  bool gradients_are_scaled = false;  ///< the last backward() left gradients that contain a loss scale
};

}  // namespace lockstep::detail
