// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/grad_scale.h"

#include "kernels/cuda/on_gpu.h"
#include "lockstep/kernels/adamw.h"
#include "lockstep/kernels/sum.h"

namespace lockstep::testing {
namespace {

Values state_of(const GradScale& state) {
  Values values({grad_scale_words}, DType::i32);
  std::memcpy(values.view().data, &state, sizeof state);
  return values;
}

TEST(GradScaleOnGpu, FollowsTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  Values cpu_state = state_of({.scale = 0x1p126f}), cpu_count = Values::of({0});
  OnGpu state(cpu_state), count(cpu_count);
  const GradScaleRule rule{.growth_interval = 2};
  for (const double value : {1.0, 1.0, 1.0, 1.0, std::nan(""), 0.5, HUGE_VAL, 1.0, 1.0}) {
    Values factor({});
    factor.set(0, value);
    OnGpu on_gpu(factor);
    launch_on(1, UpdateGradScale{cpu_state.view(), factor.view(), rule});
    launch_on(1, CountStep{cpu_count.view(), factor.view()});
    launch(gpu_stream(), UpdateGradScale{state.view(), on_gpu.view(), rule});
    launch(gpu_stream(), CountStep{count.view(), on_gpu.view()});
    EXPECT_TRUE(state.values() == cpu_state) << value;
    EXPECT_TRUE(count.values() == cpu_count) << value;
  }
  EXPECT_EQ(cpu_count[0], 7.0);
  EXPECT_TRUE(cpu_state == state_of({0x1p126f, 0, 2})) << "2^127 / 4 * 2: 2^128 is no fp32 number";
}

TEST(GradScaleOnGpu, AdamsCorrectionsHaveTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  for (const int32_t number : {1, 2, 3, 77, 1000, 1234567}) {
    Values step = Values::of({number}), schedule({3}, DType::f64);
    schedule.set(0, 3e-4);
    OnGpu on_gpu(step), schedule_on_gpu(schedule);
    launch_on(1, AdamWSchedule{step.view(), schedule.view(), 0.9, 0.95});
    launch(gpu_stream(), AdamWSchedule{on_gpu.view(), schedule_on_gpu.view(), 0.9, 0.95});
    EXPECT_TRUE(schedule_on_gpu.values() == schedule) << number;
  }
}

TEST(GradScaleOnGpu, TheClipFactorTakesTheScaleOut) {
  LOCKSTEP_NEEDS_GPU();
  for (const double scaled_by : {1.0, 3.0, 65536.0})
    for (const double square : {1e12, HUGE_VAL}) {
      Values squares({1}, DType::f64), norm({}, DType::f64), factor({}), scale({});
      squares.set(0, square);
      scale.set(0, scaled_by);
      OnGpu gpu_squares(squares), gpu_norm(norm), gpu_factor(factor), gpu_scale(scale);
      launch_on(1, ClipFactor{squares.view(), 0.5, norm.view(), factor.view(), scale.view()});
      launch(gpu_stream(),
             ClipFactor{gpu_squares.view(), 0.5, gpu_norm.view(), gpu_factor.view(), gpu_scale.view()});
      EXPECT_TRUE(gpu_norm.values() == norm) << scaled_by << " " << square;
      EXPECT_EQ(std::isnan(gpu_factor.values()[0]), std::isinf(square));
      if (std::isfinite(square)) {
        EXPECT_TRUE(gpu_factor.values() == factor) << scaled_by;
      }
    }
}

}  // namespace
}  // namespace lockstep::testing
