// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/gelu_form.h"
#include "lockstep/kernels/kernel.h"

namespace lockstep {

/// y = gelu(x).
struct GeluForward {
  static constexpr const char* name = "gelu_forward";
  View x;  ///< any shape
  View y;  ///< like x; may alias x
  Gelu form = Gelu::tanh;

  void check() const {
    expect(y.shape == x.shape && y.dtype == x.dtype, "y is ", y.shape, ", x is ", x.shape);
  }
};
void run(CpuStream, const GeluForward&);
void run(CudaStream, const GeluForward&);

/// dx = dy * gelu'(x).
struct GeluBackward {
  static constexpr const char* name = "gelu_backward";
  View x;   ///< the input of the forward
  View dy;  ///< like x
  View dx;  ///< like x; may alias dy
  Gelu form = Gelu::tanh;

  void check() const {
    expect(dy.shape == x.shape && dx.shape == x.shape && dy.dtype == x.dtype && dx.dtype == x.dtype, "dy is ",
           dy.shape, ", dx is ", dx.shape, ", x is ", x.shape, ", or their dtypes differ");
  }
};
void run(CpuStream, const GeluBackward&);
void run(CudaStream, const GeluBackward&);

}  // namespace lockstep
