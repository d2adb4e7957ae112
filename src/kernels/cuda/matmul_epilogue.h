// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/matmul.h"

namespace lockstep::cuda {

/// The rest of the work on a product x [rows, columns] from cuBLASLt: x += bias, then y = activation(x). x
/// keeps its sum with the bias, rounded, and may be y.
struct FinishProduct {
  View x;
  View bias;  ///< optional, [columns]
  View y;     ///< like x; may alias x
  Activation activation = Activation::none;
};
void run(const CudaStream& stream, const FinishProduct& kernel);

}  // namespace lockstep::cuda
