// SPDX-License-Identifier: Apache-2.0
#include "nn/learning_rate.h"

#include <cmath>
#include <numbers>

namespace lockstep {

double CosineSchedule::at(int64_t step) const {
  if (step < warmup_steps)
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps + 1);
  if (decay_steps == 0) return peak;
  if (step >= decay_steps) return floor;
  const double progress =
      static_cast<double>(step - warmup_steps) / static_cast<double>(decay_steps - warmup_steps);
  return floor + 0.5 * (1.0 + std::cos(std::numbers::pi * progress)) * (peak - floor);
}

}  // namespace lockstep
