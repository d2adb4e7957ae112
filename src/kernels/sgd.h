// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/kernel.h"

namespace lockstep {

/// One step of SGD: g = gradient_scale * clip * gradient + weight_decay * parameter. With a velocity:
/// velocity = momentum * velocity + g and then g = velocity. The step ends with parameter -= learning_rate *
/// g. This equals PyTorch's SGD without dampening if the velocity starts at zero. If gradient_scale * clip is
/// not finite, nothing is written.
struct SgdStep {
  static constexpr const char* name = "sgd_step";
  View parameter;  ///< any shape, updated
  View gradient;   ///< like parameter
  double learning_rate = 0.0;
  double weight_decay = 0.0;
  double momentum = 0.0;
  View velocity;                ///< like parameter, updated; needed if momentum is not zero
  float gradient_scale = 1.0f;  ///< multiplies the gradient first, for clipping
  View clip = {};               ///< optional, f32, one element: multiplies gradient_scale

  void check() const {
    expect(gradient.shape == parameter.shape && gradient.dtype == parameter.dtype, "gradient is ",
           gradient.shape, ", parameter is ", parameter.shape);
    expect(velocity || momentum == 0.0, "momentum needs a velocity");
    expect(!velocity || (velocity.shape == parameter.shape && velocity.dtype == parameter.dtype),
           "velocity is ", velocity.shape, ", parameter is ", parameter.shape);
    expect(!clip || (clip.size() == 1 && clip.dtype == DType::f32), "clip is ", clip.shape, " ", clip.dtype);
  }
};
void run(CpuStream, const SgdStep&);
void run(CudaStream, const SgdStep&);

}  // namespace lockstep
