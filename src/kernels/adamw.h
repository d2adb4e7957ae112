// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <vector>

#include "core/random.h"
#include "kernels/kernel.h"

namespace lockstep {

/// How the new value of a bf16 parameter becomes one: to the nearest, or up or down with a probability that
/// makes the result right on average.
enum class Rounding : uint8_t { nearest, stochastic };

/// One parameter, or a part of one, and its state.
struct AdamWSegment {
  View parameter;      ///< any shape, updated: f32 or f64, or bf16 without a master copy
  View gradient;       ///< like parameter; f32 where that is bf16
  View first_moment;   ///< like gradient, updated; zero before the first step
  View second_moment;  ///< like gradient, updated; zero before the first step
  double weight_decay = 0.0;
  View compute_copy = {};     ///< optional, f32, bf16 or f16, written: the new parameter, rounded to nearest
  uint32_t site = 0;          ///< for stochastic rounding: the parameter's place in the model
  int64_t first_element = 0;  ///< and the place of this part in the parameter
};

/// One step of AdamW (Loshchilov & Hutter 2019, algorithm 2) on every segment, with PyTorch's formula: decay
/// first, epsilon outside the bias-corrected root. Fused multiply-adds are spelled out, so that backends
/// agree in every bit. Nothing at all is written if gradient_scale * clip is not finite.
struct AdamWStep {
  static constexpr const char* name = "adamw_step";
  std::vector<AdamWSegment> segments;
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  int64_t step = 1;             ///< counts from 1
  float gradient_scale = 1.0f;  ///< the gradient is multiplied by this first: the factor that clips it
  View schedule = {};  ///< optional, f64 [3]: adamw_schedule's numbers, in place of learning_rate and step
  View clip = {};      ///< optional, f32, one element: gradient_scale is multiplied by it
  /// Of bf16 parameters: element e of a parameter adds 16-bit word e % 8 (as in Dropout) of philox<7>(
  /// derive_key(seed, site, 0), {e / 8 low, e / 8 high, 0, step}) below the bits that it keeps.
  Rounding rounding = Rounding::nearest;
  uint64_t seed = 0;
  const uint32_t* device_step = nullptr;  ///< on a GPU the step of the random words, unless it is null

  void check() const {
    expect(step >= 1, "AdamW counts its steps from 1, not ", step);
    expect(!schedule || (schedule.size() == 3 && schedule.dtype == DType::f64), "the schedule is ",
           schedule.shape, " ", schedule.dtype);
    expect(!clip || (clip.size() == 1 && clip.dtype == DType::f32), "clip is ", clip.shape, " ", clip.dtype);
    for (const AdamWSegment& segment : segments) {
      const View& parameter = segment.parameter;
      expect(parameter.dtype == DType::f32 || parameter.dtype == DType::f64 || parameter.dtype == DType::bf16,
             "f32, f64 or bf16 is needed, not ", parameter.dtype);
      const DType state = accumulator_dtype(parameter.dtype);
      for (const View* view : {&segment.gradient, &segment.first_moment, &segment.second_moment})
        expect(view->size() == parameter.size() && view->dtype == state, "gradient or state is ", view->shape,
               " ", view->dtype, ", parameter is ", parameter.shape, " ", parameter.dtype);
      const View& copy = segment.compute_copy;
      if (!copy) continue;
      expect(parameter.dtype != DType::bf16, "a bf16 parameter is its own compute copy");
      expect(copy.size() == parameter.size() && copy.dtype != DType::f64 && copy.dtype != DType::i32,
             "the compute copy is ", copy.shape, " ", copy.dtype, ", parameter is ", parameter.shape);
    }
  }
};
void run(CpuStream, const AdamWStep&);
void run(CudaStream, const AdamWStep&);

/// The learning rate, learning_rate / (1 - beta1^step), sqrt(1 - beta2^step): all that changes from step to
/// step.
std::array<double, 3> adamw_schedule(double learning_rate, double beta1, double beta2, int64_t step);

/// The bf16 below or above (in magnitude) an fp32 given by its bits: above if adding the 16 random bits
/// carries. What is not finite stays so.
constexpr uint16_t round_stochastically(uint32_t bits, uint32_t random) {
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude < 0x7f800000u) return static_cast<uint16_t>((bits + random) >> 16);
  return static_cast<uint16_t>((bits >> 16) | (magnitude > 0x7f800000u ? 0x40u : 0u));
}

}  // namespace lockstep
