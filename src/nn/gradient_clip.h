// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kernels/sum.h"
#include "tensor/tensor.h"

namespace lockstep {

/// The L2 norm over all parameters' gradients, summed in double by blocks that are fixed relative to each
/// parameter, and the factor that clips it: one element each, where the parameters are.
struct GradientNorm {
  Tensor norm;    ///< f64
  Tensor factor;  ///< f32: clip_factor(norm, max_norm)
};

/// Enqueued on the parameters' stream; the host does not wait. Throws Error naming a parameter without a
/// gradient.
GradientNorm measure_gradient_norm(const std::vector<NamedTensor>& parameters, double max_norm);

/// The norm alone, on the host.
double gradient_norm(const std::vector<NamedTensor>& parameters);

}  // namespace lockstep
