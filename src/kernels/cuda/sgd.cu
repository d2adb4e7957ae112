// SPDX-License-Identifier: Apache-2.0

// A thread takes four neighbours by one 16-byte access to each array. It takes one element if an array is not
// aligned. An element moves 12 bytes: the parameter is read and written, and the gradient is read. With a
// velocity it moves 20 bytes. The update takes a few instructions, so memory is the bound.

#include <cmath>

#include "lockstep/kernels/cuda/device/launch.cuh"
#include "lockstep/kernels/cuda/device/pack.cuh"
#include "lockstep/kernels/sgd.h"

namespace lockstep {
namespace {

constexpr int threads = 256;

struct Step {
  float* parameter;
  const float* gradient;
  float* velocity;
  const float* clip;
  float scale;
  int64_t size;
  float rate, decay, momentum;
};

template <int count>
LOCKSTEP_DEVICE void load(const float* from, float (&values)[count]) {
  if constexpr (count == 1) {
    values[0] = *from;
  } else {
    const cuda::Pack<float> pack = cuda::load_pack_streaming(from);
#pragma unroll
    for (int j = 0; j < count; ++j) values[j] = pack[j];
  }
}

template <int count>
LOCKSTEP_DEVICE void store(float* to, const float (&values)[count]) {
  if constexpr (count == 1) {
    *to = values[0];
  } else {
    cuda::Pack<float> pack;
#pragma unroll
    for (int j = 0; j < count; ++j) pack.set(j, values[j]);
    cuda::store_pack_streaming(to, pack);
  }
}

/// Updates elements [i, i + count) with the CPU's operations in the CPU's order.
template <int count>
LOCKSTEP_DEVICE void update(const Step& k, float clip, int64_t i) {
  float parameter[count], direction[count], velocity[count];
  load(k.parameter + i, parameter);
  load(k.gradient + i, direction);
  if (k.velocity) load(k.velocity + i, velocity);
#pragma unroll
  for (int j = 0; j < count; ++j) {
    direction[j] = fmaf(k.decay, parameter[j], clip * direction[j]);
    if (k.velocity) direction[j] = k.momentum * velocity[j] + direction[j];
    parameter[j] = fmaf(-k.rate, direction[j], parameter[j]);
  }
  if (k.velocity) store(k.velocity + i, direction);
  store(k.parameter + i, parameter);
}

template <int count>
__global__ __launch_bounds__(threads) void sgd_kernel(Step k) {
  const float clip = k.clip ? k.scale * *k.clip : k.scale;
  if (!std::isfinite(clip)) return;
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x) * count;
  const int64_t end = i + count < k.size ? i + count : k.size;
  if (i + count == end) return update<count>(k, clip, i);
  for (int64_t rest = i; rest < end; ++rest) update<1>(k, clip, rest);
}

}  // namespace

void run(CudaStream stream, const SgdStep& k) {
  expect(k.parameter.dtype == DType::f32, "SGD on a GPU needs f32, not ", k.parameter.dtype,
         ": f64 runs on the CPU only");
  const Step step{.parameter = k.parameter.as<float>(),
                  .gradient = k.gradient.as<float>(),
                  .velocity = k.velocity.as<float>(),
                  .clip = k.clip.as<float>(),
                  .scale = k.gradient_scale,
                  .size = k.parameter.size(),
                  .rate = static_cast<float>(k.learning_rate),
                  .decay = static_cast<float>(k.weight_decay),
                  .momentum = static_cast<float>(k.momentum)};
  constexpr int pack = cuda::Pack<float>::size;
  if (cuda::is_aligned(step.parameter, step.gradient, step.velocity))
    cuda::launch_grid(stream, {.blocks = cuda::blocks_for(step.size, threads * pack), .threads = threads},
                      sgd_kernel<pack>, step);
  else
    cuda::launch_grid(stream, {.blocks = cuda::blocks_for(step.size, threads), .threads = threads},
                      sgd_kernel<1>, step);
}

}  // namespace lockstep
