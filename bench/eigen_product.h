// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/matmul.h"

namespace lockstep {

/// c = op(a) . op(b) by Eigen's product on the calling thread: the peer of MatMul in f32, without bias and
/// activation.
void eigen_product(const MatMul& product);

}  // namespace lockstep
