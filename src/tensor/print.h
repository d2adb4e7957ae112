// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "lockstep/tensor/tensor.h"

namespace lockstep {

/// Prints the values as PyTorch does, then dtype and shape: "[[1, 2], [3, 4]] f32 [2, 2]", a line for each
/// row. Of more than 1000 elements it prints three at each end of a dimension. It waits for the GPU.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

/// Returns the coordinates of the element with this index in memory order: "[3, 17]".
std::string coordinates(int64_t index, const Shape& shape);

}  // namespace lockstep
