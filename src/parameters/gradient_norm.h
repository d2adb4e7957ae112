// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "lockstep/parameters/parameter_space.h"

namespace lockstep {

/// The L2 norm of all gradients and the factor that clips it: one element each, on the parameters' device.
struct GradientNorm {
  Tensor norm;    ///< f64
  Tensor factor;  ///< f32: min(1, max_norm / (norm + 1e-6)), NaN if the norm is not finite
};

/// Writes the sum of squares of each block of 4096 elements in these ranges to `squares`, f64 [blocks], one
/// after another. Ranges consist of whole blocks.
void square_blocks(ParameterSpace& space, std::span<const Range> ranges, const Tensor& squares);

/// Returns the norm from all blocks, added in block order. The bits do not depend on the rank that squared a
/// block. `scale`, one f32 element, is the loss scale of the gradients. It is divided out of both numbers.
GradientNorm norm_of_blocks(const Tensor& squares, double max_norm, const Tensor& scale = {});

/// Measures norm and factor on one rank. Enqueued on the parameters' stream; the host does not wait. Throws
/// Error naming a parameter without a gradient, and for scaled gradients without `scale`.
GradientNorm measure_gradient_norm(ParameterSpace& space, double max_norm, const Tensor& scale = {});

/// Returns the norm alone, on the host.
double gradient_norm(ParameterSpace& space);

}  // namespace lockstep
