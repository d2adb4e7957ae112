// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "lockstep/parameters/update_options.h"

namespace lockstep {

/// Linear warm-up, then a cosine down to a floor (Loshchilov & Hutter 2017), in nanoGPT's form.
struct CosineSchedule {
  double peak = 1e-3;
  double floor = 0.0;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;  ///< the step at which the floor is reached; 0 keeps the peak

  /// Returns the learning rate of iteration `step`, counted from 0.
  double at(int64_t step) const;
};

/// Linear warm-up, then the constant peak and a linear decay to a floor. This is warm-up, stable, decay (Hu
/// et al. 2024, section 4) with the linear decay of Hägele et al. 2024.
struct WarmupStableDecay {
  double peak = 1e-3;
  double floor = 0.0;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;     ///< the step at which the floor is reached
  int64_t cooldown_steps = 0;  ///< length of the decay, which ends at decay_steps; 0: the rate drops there

  /// Returns the learning rate of iteration `step`, counted from 0.
  double at(int64_t step) const;
};

/// Returns a function from a step, counted from 0, to its learning rate. `decay_steps` must not be open.
std::function<double(int64_t)> schedule_of(const ScheduleOptions& options);

}  // namespace lockstep
