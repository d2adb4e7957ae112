// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <vector>

#include "lockstep/kernels/elementary.h"
#include "lockstep/kernels/kernel.h"

namespace lockstep {

/// Parameters with the same settings, or a part of them, and their optimizer state.
struct AdamWSlice {
  View parameter;      ///< any shape, f32 or f64, updated
  View gradient;       ///< like parameter
  View first_moment;   ///< like parameter, updated; zero before the first step
  View second_moment;  ///< like parameter, updated; zero before the first step
  double weight_decay = 0.0;
  double learning_rate_factor = 1.0;  ///< multiplies the learning rate of the step
  View compute_copy = {};  ///< optional, f32, bf16 or f16: receives the new parameter, rounded to nearest
};

/// One step of AdamW (Loshchilov & Hutter 2019, algorithm 2) on every slice. The formula is PyTorch's: decay
/// first, epsilon outside the bias-corrected root. Fused multiply-adds are explicit, so all backends give the
/// same bits. If gradient_scale * clip is not finite, nothing is written.
struct AdamWStep {
  static constexpr const char* name = "adamw_step";
  std::vector<AdamWSlice> slices;
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  int64_t step = 1;             ///< counts from 1
  float gradient_scale = 1.0f;  ///< multiplies the gradient first, for clipping
  View schedule = {};  ///< optional, f64 [3]: adamw_schedule(), used instead of learning_rate and step
  View clip = {};      ///< optional, f32, one element: multiplies gradient_scale

  void check() const {
    expect(step >= 1, "AdamW counts its steps from 1, not ", step);
    expect(!schedule || (schedule.size() == 3 && schedule.dtype == DType::f64), "the schedule is ",
           schedule.shape, " ", schedule.dtype);
    expect(!clip || (clip.size() == 1 && clip.dtype == DType::f32), "clip is ", clip.shape, " ", clip.dtype);
    for (const AdamWSlice& slice : slices) {
      const View& parameter = slice.parameter;
      expect(parameter.dtype == DType::f32 || parameter.dtype == DType::f64, "f32 or f64 is needed, not ",
             parameter.dtype);
      for (const View* view : {&slice.gradient, &slice.first_moment, &slice.second_moment})
        expect(view->size() == parameter.size() && view->dtype == parameter.dtype, "gradient or state is ",
               view->shape, " ", view->dtype, ", parameter is ", parameter.shape, " ", parameter.dtype);
      const View& copy = slice.compute_copy;
      if (!copy) continue;
      expect(copy.size() == parameter.size() && copy.dtype != DType::f64 && copy.dtype != DType::i32,
             "the compute copy is ", copy.shape, " ", copy.dtype, ", parameter is ", parameter.shape);
    }
  }
};
void run(CpuStream, const AdamWStep&);
void run(CudaStream, const AdamWStep&);

/// Returns {learning_rate, learning_rate / (1 - beta1^step), sqrt(1 - beta2^step)}. Nothing else changes from
/// step to step.
std::array<double, 3> adamw_schedule(double learning_rate, double beta1, double beta2, int64_t step);

/// adamw_schedule() as a kernel, for a step number that is known only on the device.
struct AdamWSchedule {
  static constexpr const char* name = "adamw_schedule";
  View step;      ///< i32, one element; at step 0 only the learning rate is meaningful
  View schedule;  ///< f64 [3]: begins with the learning rate; the other two are written
  double beta1 = 0.9;
  double beta2 = 0.999;

  void check() const {
    expect(step.size() == 1 && step.dtype == DType::i32, "the step is ", step.shape, " ", step.dtype);
    expect(schedule.size() == 3 && schedule.dtype == DType::f64, "the schedule is ", schedule.shape, " ",
           schedule.dtype);
  }
};
void run(CpuStream, const AdamWSchedule&);
void run(CudaStream, const AdamWSchedule&);

}  // namespace lockstep
