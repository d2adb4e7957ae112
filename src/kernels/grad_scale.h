// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>

#include "lockstep/kernels/grad_scale_state.h"
#include "lockstep/kernels/kernel.h"

namespace lockstep {

/// Number of elements in an i32 tensor that holds a GradScale.
inline constexpr int64_t grad_scale_words = 3;
static_assert(sizeof(GradScale) == grad_scale_words * sizeof(int32_t));

/// Returns the scale after a step, as PyTorch's GradScaler.update() chooses it. The scale does not grow if
/// fp32 cannot hold the larger one.
constexpr GradScale next_scale(GradScale now, bool is_good, const GradScaleRule& rule) {
  if (!is_good) return {static_cast<float>(now.scale * rule.backoff_factor), 0, now.skipped_steps + 1};
  if (++now.growth_tracker < rule.growth_interval) return now;
  const double grown = now.scale * rule.growth_factor;
  if (grown <= double{std::numeric_limits<float>::max()}) now.scale = static_cast<float>(grown);
  now.growth_tracker = 0;
  return now;
}

/// state = next_scale(state). The step is good if `factor`, the result of ClipFactor, is finite.
struct UpdateGradScale {
  static constexpr const char* name = "update_grad_scale";
  View state;   ///< i32 [3]: a GradScale
  View factor;  ///< f32, one element
  GradScaleRule rule;

  void check() const {
    expect(state.size() == grad_scale_words && state.dtype == DType::i32, "the state is ", state.shape, " ",
           state.dtype);
    expect(factor.size() == 1 && factor.dtype == DType::f32, "the factor is ", factor.shape, " ",
           factor.dtype);
    expect(rule.growth_factor > 1.0 && rule.backoff_factor > 0.0 && rule.backoff_factor < 1.0 &&
               rule.growth_interval >= 1,
           "a loss scale grows by ", rule.growth_factor, " after ", rule.growth_interval,
           " steps and backs off by ", rule.backoff_factor);
  }
};
void run(CpuStream, const UpdateGradScale&);
void run(CudaStream, const UpdateGradScale&);

/// count += 1 if `factor` is finite. So it counts the steps that were not skipped. It wraps around after
/// 2^32.
struct CountStep {
  static constexpr const char* name = "count_step";
  View count;   ///< i32, one element
  View factor;  ///< f32, one element

  void check() const {
    expect(count.size() == 1 && count.dtype == DType::i32, "the count is ", count.shape, " ", count.dtype);
    expect(factor.size() == 1 && factor.dtype == DType::f32, "the factor is ", factor.shape, " ",
           factor.dtype);
  }
};
void run(CpuStream, const CountStep&);
void run(CudaStream, const CountStep&);

}  // namespace lockstep
