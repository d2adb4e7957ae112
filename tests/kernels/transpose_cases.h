// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "kernels/values.h"
#include "lockstep/kernels/transpose.h"

namespace lockstep::testing {

struct TransposeCase {
  Shape shape;
  int first, second;
};

/// Swaps with and without the last dimension, with dimensions before and between, and of a dimension with
/// itself. Sizes are less than a tile, several tiles, or empty. Some runs are multiples of 16 bytes and some
/// are not.
inline const std::vector<TransposeCase> transpose_cases = {
    {{2, 3}, 0, 1},       {{40, 33}, 0, 1},     {{3, 70, 65}, 1, 2},   {{5, 1, 9}, 0, 2},
    {{2, 7, 3, 5}, 1, 3}, {{2, 7, 3, 5}, 0, 2}, {{3, 34, 4, 8}, 1, 2}, {{4, 3, 2, 16}, 0, 1},
    {{6, 2, 1, 4}, 0, 2}, {{4, 5}, 1, 1},       {{0, 4}, 0, 1},        {{2, 0, 3}, 0, 2},
    {{300, 200}, 0, 1},   {{3, 4, 0}, 0, 1},
};

/// Returns the transposed values, computed coordinate by coordinate.
inline Values transposed(const Values& x, DType dtype, int first, int second) {
  const Shape& from = x.shape();
  const Shape to = Transpose::swapped(from, first, second);
  Values y(to, dtype);
  for (int64_t i = 0; i < x.size(); ++i) {
    int64_t rest = i;
    int64_t at[Shape::max_rank] = {};
    for (int d = from.rank() - 1; d >= 0; --d) {
      at[d] = rest % from[d];
      rest /= from[d];
    }
    std::swap(at[first], at[second]);
    int64_t place = 0;
    for (int d = 0; d < to.rank(); ++d) place = place * to[d] + at[d];
    y.set(place, x[i]);
  }
  return y;
}

}  // namespace lockstep::testing
