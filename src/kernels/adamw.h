// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kernels/kernel.h"

namespace lockstep {

/// One parameter, or a part of one, and its state.
struct AdamWSegment {
  View parameter;      ///< any shape, updated
  View gradient;       ///< like parameter
  View first_moment;   ///< like parameter, updated; zero before the first step
  View second_moment;  ///< like parameter, updated; zero before the first step
  double weight_decay = 0.0;
};

/// One step of AdamW (Loshchilov & Hutter 2019, algorithm 2) on every segment, with PyTorch's formula: decay
/// first, epsilon outside the bias-corrected root. Fused multiply-adds are spelled out, so that backends
/// agree in every bit.
struct AdamWStep {
  static constexpr const char* name = "adamw_step";
  std::vector<AdamWSegment> segments;
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  int64_t step = 1;             ///< counts from 1
  float gradient_scale = 1.0f;  ///< the gradient is multiplied by this first: the factor that clips it

  void check() const {
    expect(step >= 1, "AdamW counts its steps from 1, not ", step);
    for (const AdamWSegment& segment : segments) {
      const View& parameter = segment.parameter;
      expect(parameter.dtype == DType::f32 || parameter.dtype == DType::f64, "f32 or f64 is needed, not ",
             parameter.dtype);
      for (const View* view : {&segment.gradient, &segment.first_moment, &segment.second_moment})
        expect(view->size() == parameter.size() && view->dtype == parameter.dtype, "gradient or state is ",
               view->shape, " ", view->dtype, ", parameter is ", parameter.shape, " ", parameter.dtype);
    }
  }
};
void run(CpuStream, const AdamWStep&);
void run(CudaStream, const AdamWStep&);

}  // namespace lockstep
