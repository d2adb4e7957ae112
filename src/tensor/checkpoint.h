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

}  // namespace lockstep
