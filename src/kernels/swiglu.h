// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/elementwise.h"

namespace lockstep {

/// y = silu(gate) * up, where silu(g) = g / (1 + e^-g) (Shazeer 2020, eq. 6).
struct SwigluForward {
  static constexpr const char* name = "swiglu_forward";
  View gate;  ///< any shape
  View up;    ///< like gate
  View y;     ///< like gate; may alias gate or up

  void check() const {
    expect_like(up, gate, "up");
    expect_like(y, gate, "y");
  }
};
void run(CpuStream, const SwigluForward&);
void run(CudaStream, const SwigluForward&);

/// dgate = dy * up * silu'(gate) and dup = dy * silu(gate). With the sigmoid s of g, silu'(g) = s + g s (1 -
/// s).
struct SwigluBackward {
  static constexpr const char* name = "swiglu_backward";
  View gate;   ///< the inputs of the forward
  View up;     ///< like gate
  View dy;     ///< like gate
  View dgate;  ///< like gate; may alias an input
  View dup;    ///< like gate; may alias an input, but not dgate

  void check() const {
    expect_like(up, gate, "up");
    expect_like(dy, gate, "dy");
    expect_like(dgate, gate, "dgate");
    expect_like(dup, gate, "dup");
  }
};
void run(CpuStream, const SwigluBackward&);
void run(CudaStream, const SwigluBackward&);

}  // namespace lockstep
