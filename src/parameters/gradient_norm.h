// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "parameters/parameter_space.h"

namespace lockstep {

/// The L2 norm over all gradients of a space and the factor that clips it: one element each, where the
/// parameters are.
struct GradientNorm {
  Tensor norm;    ///< f64
  Tensor factor;  ///< f32: clip_factor(norm, max_norm), NaN if the norm is not finite
};

/// The sums of squares of the blocks of 4096 elements in these ranges, which are cut at blocks, into their
/// places in `squares`, f64 [trainable_elements() / 4096].
void square_blocks(ParameterSpace& space, std::span<const Range> ranges, const Tensor& squares);

/// The norm from all blocks, added in block order: the same bits whoever squared them. `scale`, one f32
/// element, is what the gradients are multiplied by: it is divided out of both numbers.
GradientNorm norm_of_blocks(const Tensor& squares, double max_norm, const Tensor& scale = {});

/// Both, on one rank. Enqueued on the parameters' stream; the host does not wait. Throws Error naming a
/// parameter without a gradient, and where gradients are scaled but not by `scale`.
GradientNorm measure_gradient_norm(ParameterSpace& space, double max_norm, const Tensor& scale = {});

/// The norm alone, on the host.
double gradient_norm(ParameterSpace& space);

}  // namespace lockstep
