// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/kernel.h"

namespace lockstep {

/// Copies rows of `length` elements between arrays whose rows lie `x_stride` and `y_stride` elements apart:
/// y[r * y_stride + i] = x[r * x_stride + i]. It cuts a part out of a dimension, or inserts one.
struct CopyRows {
  static constexpr const char* name = "copy_rows";
  View x;  ///< from the first element that is read to the end of the array, in any shape; any dtype
  View y;  ///< from the first element that is written to the end of its array; dtype of x; no overlap
  int64_t rows = 0;
  int64_t length = 0;
  int64_t x_stride = 0;  ///< at least `length`
  int64_t y_stride = 0;  ///< at least `length`

  void check() const {
    const auto fits = [&](const View& view, int64_t stride) {
      return stride >= length && (rows == 0 || length == 0 || (rows - 1) * stride + length <= view.size());
    };
    expect(rows >= 0 && length >= 0 && x.dtype == y.dtype && fits(x, x_stride) && fits(y, y_stride), rows,
           " rows of ", length, " elements do not fit: x is ", x.shape, " ", x.dtype, " with a stride of ",
           x_stride, ", y is ", y.shape, " ", y.dtype, " with a stride of ", y_stride);
  }
};
void run(CpuStream, const CopyRows&);
void run(CudaStream, const CopyRows&);

}  // namespace lockstep
