// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "lockstep/kernels/kernel.h"

namespace lockstep {

/// A copy of x with two dimensions swapped, in any dtype. The kernel reads x as [outer, rows, between,
/// columns, inner]. It writes y as [outer, columns, between, rows, inner].
struct Transpose {
  static constexpr const char* name = "transpose";
  View x;          ///< any shape
  View y;          ///< shape of swapped(); no overlap
  int first = 0;   ///< dimension of x, not negative
  int second = 1;  ///< dimension of x, at least `first`

  /// Returns `shape` after the swap.
  static Shape swapped(const Shape& shape, int first, int second) {
    Shape result;
    for (int i = 0; i < shape.rank(); ++i)
      result.append(shape[i == first ? second : (i == second ? first : i)]);
    return result;
  }
  /// Returns the product of the extents of x's dimensions [begin, end).
  int64_t extent(int begin, int end) const {
    int64_t product = 1;
    for (int i = begin; i < end; ++i) product *= x.shape[i];
    return product;
  }
  int64_t outer() const { return extent(0, first); }
  int64_t rows() const { return x.shape[first]; }
  int64_t between() const { return first == second ? 1 : extent(first + 1, second); }
  int64_t columns() const { return first == second ? 1 : x.shape[second]; }
  int64_t inner() const { return extent(second + 1, x.shape.rank()); }

  void check() const {
    expect(0 <= first && first <= second && second < x.shape.rank(), "cannot swap dimensions ", first,
           " and ", second, " of x ", x.shape);
    expect(y.shape == swapped(x.shape, first, second) && y.dtype == x.dtype, "y is ", y.shape, " ", y.dtype,
           ", x is ", x.shape, " ", x.dtype, " with dimensions ", first, " and ", second, " to be swapped");
  }
};
void run(CpuStream, const Transpose&);
void run(CudaStream, const Transpose&);

}  // namespace lockstep
