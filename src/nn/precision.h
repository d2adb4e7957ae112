// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace lockstep {

/// Gives every f32 parameter a copy in a 16-bit dtype, in which the model then computes; f32 takes the copies
/// away. The f32 tensors stay what optimizers update, snapshots keep and gradients belong to (Micikevicius et
/// al. 2018).
void set_precision(const std::vector<NamedTensor>& parameters, DType dtype);

/// Brings the copies up to date with their parameters, after something else than an optimizer has changed
/// those.
void refresh_compute_copies(const std::vector<NamedTensor>& parameters);

}  // namespace lockstep
