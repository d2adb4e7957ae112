// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/kernel.h"

namespace lockstep {

/// g = gradient_scale * clip * gradient + weight_decay * parameter; with a velocity: velocity = momentum *
/// velocity + g and g = velocity; parameter -= learning_rate * g. As PyTorch's SGD without dampening, given a
/// velocity that starts at zero. Nothing at all is written if that factor is not finite.
struct SgdStep {
  static constexpr const char* name = "sgd_step";
  View parameter;  ///< any shape, updated
  View gradient;   ///< like parameter
  double learning_rate = 0.0;
  double weight_decay = 0.0;
  double momentum = 0.0;
  View velocity;                ///< like parameter, updated; needed if momentum is not zero
  float gradient_scale = 1.0f;  ///< as in AdamWStep
  View clip = {};               ///< optional, f32, one element

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
