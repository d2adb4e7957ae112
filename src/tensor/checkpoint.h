// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

/// function(inputs), of which the tape keeps the inputs only: the backward runs the function again for what
/// else it needs (Chen et al. 2016). Results, gradients and the order in which leaves are ready are the same,
/// bit for bit. Leaves may be captured; reading others when it runs again is an Error. The function lives
/// until the backward: what it captures by reference must too.
Tensor checkpoint(const std::function<Tensor(const std::vector<Tensor>& inputs)>& function,
                  const std::vector<Tensor>& inputs);

/// functions, one after the other from `input` on, in this many runs of nearly equal length: each is a
/// checkpoint() but the last, whose backward comes first, as in PyTorch. Throws Error unless there are from 1
/// to functions.size() segments.
Tensor checkpoint_sequential(const std::vector<std::function<Tensor(const Tensor& x)>>& functions,
                             int64_t segments, const Tensor& input);

}  // namespace lockstep
