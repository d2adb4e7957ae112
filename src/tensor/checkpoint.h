// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep {

/// Returns function(inputs). The tape keeps only the inputs: the backward runs the function again for
/// everything else (Chen et al. 2016). Results, gradients and the order in which leaves become ready are
/// bit-identical. Leaves may be captured; a second run that reads other leaves is an Error. The function
/// lives until the backward. So everything that it captures by reference must live as long.
Tensor checkpoint(const std::function<Tensor(const std::vector<Tensor>& inputs)>& function,
                  const std::vector<Tensor>& inputs);

/// Runs `functions` one after the other from `input` on. They form `segments` runs of nearly equal length. As
/// in PyTorch, each run is a checkpoint() except the last: its backward comes first. Throws Error unless
/// `segments` is from 1 to functions.size().
Tensor checkpoint_sequential(const std::vector<std::function<Tensor(const Tensor& x)>>& functions,
                             int64_t segments, const Tensor& input);

}  // namespace lockstep
