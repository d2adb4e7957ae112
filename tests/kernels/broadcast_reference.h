// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kernels/values.h"

namespace lockstep::testing {

/// Returns the index, in an operand broadcast to y's shape, of the value for element `index` of y. Computes
/// it coordinate by coordinate.
inline int64_t place_in_operand(const Shape& operand, const Shape& y, int64_t index) {
  int64_t place = 0, stride = 1;
  for (int i = -1; i >= -y.rank(); --i) {
    const int64_t coordinate = index % y[i];
    index /= y[i];
    if (i < -operand.rank()) continue;
    if (operand[i] != 1) place += coordinate * stride;
    stride *= operand[i];
  }
  return place;
}

struct BroadcastShapes {
  Shape a, b, y;
};

/// Rows, columns, scalars, several dimensions on either side, one-element and empty results. Some innermost
/// dimensions are multiples of 16 bytes in every dtype, and some shapes have several blocks.
inline const std::vector<BroadcastShapes> broadcast_shapes = {
    {{3, 1, 7}, {5, 1}, {3, 5, 7}},
    {{4, 16}, {16}, {4, 16}},
    {{16}, {4, 16}, {4, 16}},
    {{4, 16}, {4, 1}, {4, 16}},
    {{}, {2, 3}, {2, 3}},
    {{2, 3}, {1}, {2, 3}},
    {{1, 3}, {3}, {1, 3}},
    {{2, 1, 3, 1}, {4, 1, 8}, {2, 4, 3, 8}},
    {{2, 3, 4, 8}, {3, 1, 8}, {2, 3, 4, 8}},
    {{1}, {}, {1}},
    {{0, 3}, {1, 3}, {0, 3}},
    {{1, 1}, {2, 0}, {2, 0}},
    {{9, 1, 130}, {70, 1}, {9, 70, 130}},
    {{300, 120}, {300, 1}, {300, 120}},
};

}  // namespace lockstep::testing
