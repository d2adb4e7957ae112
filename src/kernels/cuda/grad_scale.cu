// SPDX-License-Identifier: Apache-2.0

// Decisions that one thread makes after a step so that the host need not wait for it. A few words are read
// and written once. Bound: the latency of a launch.

#include <cmath>

#include "lockstep/kernels/cuda/device/intrinsics.cuh"
#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/grad_scale.h"

namespace lockstep {
namespace {

__global__ void __launch_bounds__(1)
    update_grad_scale_kernel(GradScale* state, const float* factor, GradScaleRule rule) {
  *state = next_scale(*state, std::isfinite(*factor), rule);
}

__global__ void __launch_bounds__(1) count_step_kernel(int32_t* count, const float* factor) {
  *count = static_cast<int32_t>(static_cast<uint32_t>(*count) + std::isfinite(*factor));
}

}  // namespace

void run(CudaStream stream, const UpdateGradScale& k) {
  cuda::launch_grid(stream, {.blocks = 1, .threads = 1}, update_grad_scale_kernel,
                    static_cast<GradScale*>(k.state.data), k.factor.as<float>(), k.rule);
}

void run(CudaStream stream, const CountStep& k) {
  cuda::launch_grid(stream, {.blocks = 1, .threads = 1}, count_step_kernel, k.count.as<int32_t>(),
                    k.factor.as<float>());
}

}  // namespace lockstep
