// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/grad_scale.h"

#include <cmath>
#include <cstring>

namespace lockstep {

void run(CpuStream, const UpdateGradScale& k) {
  GradScale state;
  std::memcpy(&state, k.state.data, sizeof state);
  state = next_scale(state, std::isfinite(*k.factor.as<float>()), k.rule);
  std::memcpy(k.state.data, &state, sizeof state);
}

void run(CpuStream, const CountStep& k) {
  auto* const count = k.count.as<int32_t>();
  *count = static_cast<int32_t>(static_cast<uint32_t>(*count) + std::isfinite(*k.factor.as<float>()));
}

}  // namespace lockstep
