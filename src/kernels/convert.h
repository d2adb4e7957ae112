// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/kernel.h"

namespace lockstep {

/// y = x in another dtype, rounded to nearest even. Float types convert to each other, and i32 converts to
/// any of them. A GPU refuses f64.
struct Convert {
  static constexpr const char* name = "convert";
  View x;  ///< any shape
  View y;  ///< any shape with x's number of elements; no overlap

  void check() const {
    expect(y.size() == x.size(), "y is ", y.shape, ", x is ", x.shape);
    expect(y.dtype != DType::i32 || x.dtype == DType::i32, "cannot convert ", x.dtype, " to i32");
  }
};
void run(CpuStream, const Convert&);
void run(CudaStream, const Convert&);

}  // namespace lockstep
