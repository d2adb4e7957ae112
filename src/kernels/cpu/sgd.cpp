// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/sgd.h"

#include <cmath>

#include "lockstep/kernels/cpu/map.h"

namespace lockstep {

void run(CpuStream stream, const SgdStep& k) {
  const float clip = k.clip ? k.gradient_scale * *k.clip.as<float>() : k.gradient_scale;
  if (!std::isfinite(clip)) return;
  with_compute_type(k.parameter.dtype, [&]<class T>() {
    T* parameter = k.parameter.as<T>();
    const T* gradient = k.gradient.as<T>();
    T* velocity = k.velocity.as<T>();
    const T scale = static_cast<T>(clip);
    const T rate = static_cast<T>(k.learning_rate);
    const T decay = static_cast<T>(k.weight_decay);
    const T momentum = static_cast<T>(k.momentum);
    stream.for_each_chunk(k.parameter.size(), elementwise_grain, [=](int64_t begin, int64_t end) {
      if (!velocity) {
        const auto step = [=](T p, T g) { return std::fma(-rate, std::fma(decay, p, scale * g), p); };
        return map_range<T>(begin, end, parameter, step, parameter, gradient);
      }
      const auto accumulate = [=](T v, T p, T g) { return momentum * v + std::fma(decay, p, scale * g); };
      map_range<T>(begin, end, velocity, accumulate, velocity, parameter, gradient);
      map_range<T>(
          begin, end, parameter, [=](T p, T v) { return std::fma(-rate, v, p); }, parameter, velocity);
    });
  });
}

}  // namespace lockstep
