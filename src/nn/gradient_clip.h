// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

/// The L2 norm over all parameters' gradients, summed in double by blocks that are fixed relative to each
/// parameter.
double gradient_norm(const std::vector<NamedTensor>& parameters);

/// The factor that brings a norm down to at most `max_norm`: min(1, max_norm / (norm + 1e-6)), as PyTorch's
/// clip_grad_norm_. 1 if max_norm is 0 (off).
float clip_factor(double norm, double max_norm);

}  // namespace lockstep
