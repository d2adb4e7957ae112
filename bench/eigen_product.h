// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/matmul.h"

namespace lockstep {

/// Computes c = op(a) . op(b) with Eigen on the calling thread. It is the peer of an f32 MatMul without bias
/// and activation.
void eigen_product(const MatMul& product);

}  // namespace lockstep
