// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "lockstep/kernels/cpu/lanes.h"
#include "lockstep/kernels/sum.h"

namespace lockstep {

/// Number of columns that are added up together.
inline constexpr int64_t sum_columns = 64;

/// y[j] = the sum of x[row, j] over the rows, for `columns` columns. It adds runs of `sum_rows` rows in
/// order, then the sums of the runs in order. Two rows are `stride` elements apart. With `go_on`, y already
/// holds the sum of earlier rows, and their number is a multiple of sum_rows.
template <class X, class T>
void sum_column_chunk(const X* x, T* y, int64_t rows, int64_t stride, int64_t columns, bool go_on = false) {
  using Sums = Simd<T, sum_columns>;
  for_each_piece<sum_columns>(
      columns, [=](int64_t first, int64_t used) __attribute__((always_inline)) {
        Sums total = go_on ? Sums::load(y + first, used) : Sums();
        for (int64_t begin = 0; begin < rows; begin += sum_rows) {
          Sums partial;
          for (int64_t row = begin; row < std::min(begin + sum_rows, rows); ++row)
            partial = partial + Sums::load(x + row * stride + first, used);
          total = total + partial;
        }
        total.store(y + first, used);
      });
}

}  // namespace lockstep
