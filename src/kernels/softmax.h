// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/elementwise.h"

namespace lockstep {

/// y = e^(x - m) / sum(e^(x - m)) for every row, where m is its largest element. A row is NaN if all its
/// elements are -infinity or one is NaN or +infinity.
struct SoftmaxForward {
  static constexpr const char* name = "softmax_forward";
  View x;  ///< [..., columns]
  View y;  ///< like x; may alias x

  void check() const {
    expect(x.shape.rank() >= 1, "softmax needs rows, not a scalar");
    expect_like(y, x, "y");
  }
};
void run(CpuStream, const SoftmaxForward&);
void run(CudaStream, const SoftmaxForward&);

/// dx = y * (dy - sum(y * dy)) for every row.
struct SoftmaxBackward {
  static constexpr const char* name = "softmax_backward";
  View y;   ///< [..., columns], the output of the forward
  View dy;  ///< like y
  View dx;  ///< like y; may alias dy

  void check() const {
    expect(y.shape.rank() >= 1, "softmax needs rows, not a scalar");
    expect_like(dy, y, "dy");
    expect_like(dx, y, "dx");
  }
};
void run(CpuStream, const SoftmaxBackward&);
void run(CudaStream, const SoftmaxBackward&);

}  // namespace lockstep
