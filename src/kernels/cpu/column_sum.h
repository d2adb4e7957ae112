// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/sum.h"

namespace lockstep {

/// Columns that are added up together.
inline constexpr int64_t sum_columns = 64;

/// y[j] = the sum of x[row, j] for up to sum_columns columns: `sum_rows` rows one after the other, then the
/// sums of these in order. `stride` elements lie between two rows. `go_on`: y holds the sum of earlier rows,
/// a multiple of sum_rows.
template <class X, class T>
void sum_column_chunk(const X* x, T* y, int64_t rows, int64_t stride, int64_t columns, bool go_on = false) {
  T total[sum_columns] = {};
  if (go_on) std::copy_n(y, columns, total);
  for (int64_t begin = 0; begin < rows; begin += sum_rows) {
    T partial[sum_columns] = {};
    for (int64_t row = begin; row < std::min(begin + sum_rows, rows); ++row)
      for (int64_t j = 0; j < columns; ++j) partial[j] += static_cast<T>(x[row * stride + j]);
    for (int64_t j = 0; j < columns; ++j) total[j] += partial[j];
  }
  std::copy_n(total, columns, y);
}

}  // namespace lockstep
