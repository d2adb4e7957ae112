// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/elementwise.h"

namespace lockstep {

/// y = 1 / (1 + e^-x), the logistic function.
struct SigmoidForward {
  static constexpr const char* name = "sigmoid_forward";
  View x;  ///< any shape
  View y;  ///< like x; may alias x

  void check() const { expect_like(y, x, "y"); }
};
void run(CpuStream, const SigmoidForward&);
void run(CudaStream, const SigmoidForward&);

/// dx = dy * y * (1 - y).
struct SigmoidBackward {
  static constexpr const char* name = "sigmoid_backward";
  View y;   ///< the output of the forward
  View dy;  ///< like y
  View dx;  ///< like y; may alias dy

  void check() const {
    expect_like(dy, y, "dy");
    expect_like(dx, y, "dx");
  }
};
void run(CpuStream, const SigmoidBackward&);
void run(CudaStream, const SigmoidBackward&);

/// y = x * sigmoid(x) (Hendrycks & Gimpel 2016; Elfwing et al. 2017).
struct SiluForward {
  static constexpr const char* name = "silu_forward";
  View x;  ///< any shape
  View y;  ///< like x; may alias x

  void check() const { expect_like(y, x, "y"); }
};
void run(CpuStream, const SiluForward&);
void run(CudaStream, const SiluForward&);

/// dx = dy * s * (1 + x * (1 - s)) with s = sigmoid(x).
struct SiluBackward {
  static constexpr const char* name = "silu_backward";
  View x;   ///< the input of the forward
  View dy;  ///< like x
  View dx;  ///< like x; may alias dy

  void check() const {
    expect_like(dy, x, "dy");
    expect_like(dx, x, "dx");
  }
};
void run(CpuStream, const SiluBackward&);
void run(CudaStream, const SiluBackward&);

}  // namespace lockstep
