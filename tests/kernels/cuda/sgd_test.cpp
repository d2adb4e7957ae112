// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/sgd.h"

#include "kernels/cuda/on_gpu.h"

namespace lockstep::testing {
namespace {

struct Arrays {
  Values parameter, gradient, velocity, clip;

  Arrays(int64_t size, double factor)
      : parameter(Values::uniform({size}, DType::f32, 1)),
        gradient(Values::uniform({size}, DType::f32, 2)),
        velocity(Values::uniform({size}, DType::f32, 3)),
        clip({}) {
    clip.set(0, factor);
  }
};

/// Compares three steps on the CPU and the GPU, with `momentum` unless it is 0.
void expect_bits_of_the_cpu(int64_t size, int64_t shift, double momentum, double factor) {
  Arrays cpu(size, factor);
  OnGpu parameter(cpu.parameter, shift), gradient(cpu.gradient, shift), velocity(cpu.velocity, shift),
      clip(cpu.clip);
  SgdStep k{.parameter = {},
            .gradient = {},
            .learning_rate = 0.1,
            .weight_decay = 0.01,
            .momentum = momentum,
            .velocity = {},
            .gradient_scale = 0.7f};
  for (int step = 0; step < 3; ++step) {
    k.parameter = cpu.parameter.view();
    k.gradient = cpu.gradient.view();
    k.velocity = momentum == 0.0 ? View{} : cpu.velocity.view();
    k.clip = cpu.clip.view();
    launch_on(1, k);
    k.parameter = parameter.view();
    k.gradient = gradient.view();
    k.velocity = momentum == 0.0 ? View{} : velocity.view();
    k.clip = clip.view();
    launch(gpu_stream(), k);
  }
  EXPECT_TRUE(parameter.values() == cpu.parameter) << size << " " << shift << " " << momentum;
  EXPECT_TRUE(velocity.values() == cpu.velocity) << size << " " << shift << " " << momentum;
}

TEST(SgdOnGpu, HasTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  for_each_schedule([] {
    for (const int64_t size : {1, 7, 1024, 5003})
      for (const int64_t shift : {0, 1})
        for (const double momentum : {0.0, 0.9}) expect_bits_of_the_cpu(size, shift, momentum, 0.3);
  });
}

TEST(SgdOnGpu, NothingChangesIfTheClipFactorIsNotFinite) {
  LOCKSTEP_NEEDS_GPU();
  for (const double factor : {std::nan(""), HUGE_VAL}) {
    Arrays before(1000, factor);
    OnGpu parameter(before.parameter), gradient(before.gradient), velocity(before.velocity),
        clip(before.clip);
    launch(gpu_stream(),
           SgdStep{parameter.view(), gradient.view(), 0.1, 0.01, 0.9, velocity.view(), 1.0f, clip.view()});
    EXPECT_TRUE(parameter.values() == before.parameter);
    EXPECT_TRUE(velocity.values() == before.velocity);
  }
}

TEST(SgdOnGpu, F64IsForTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  OnGpu array(Values({3}, DType::f64));
  EXPECT_THROW(
      launch(gpu_stream(), SgdStep{.parameter = array.view(), .gradient = array.view(), .velocity = {}}),
      Error);
}

}  // namespace
}  // namespace lockstep::testing
