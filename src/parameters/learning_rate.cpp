// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parameters/learning_rate.h"

#include <algorithm>

#include "lockstep/kernels/elementary.h"

namespace lockstep {

/// Returns the learning rate of iteration `step` of a linear warm-up to `peak`.
static double warmup_rate(double peak, int64_t step, int64_t warmup_steps) {
  return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps + 1);
}

double CosineSchedule::at(int64_t step) const {
  if (step < warmup_steps) return warmup_rate(peak, step, warmup_steps);
  if (decay_steps == 0) return peak;
  if (step >= decay_steps) return floor;
  const double progress =
      static_cast<double>(step - warmup_steps) / static_cast<double>(decay_steps - warmup_steps);
  return floor + 0.5 * (1.0 + math::cos_of_turns(0.5 * progress)) * (peak - floor);
}

double WarmupStableDecay::at(int64_t step) const {
  if (step < warmup_steps) return warmup_rate(peak, step, warmup_steps);
  if (step >= decay_steps) return floor;
  if (step <= decay_steps - cooldown_steps) return peak;
  return floor +
         (peak - floor) * static_cast<double>(decay_steps - step) / static_cast<double>(cooldown_steps);
}

std::function<double(int64_t)> schedule_of(const ScheduleOptions& options) {
  if (options.schedule == Schedule::wsd) {
    const int64_t room = std::max<int64_t>(0, options.decay_steps - options.warmup_steps);
    const int64_t wanted =
        options.cooldown_steps > 0 ? options.cooldown_steps : (options.decay_steps + 9) / 10;
    const WarmupStableDecay schedule{.peak = options.learning_rate,
                                     .floor = options.min_lr,
                                     .warmup_steps = options.warmup_steps,
                                     .decay_steps = options.decay_steps,
                                     .cooldown_steps = std::min(room, wanted)};
    return [schedule](int64_t step) { return schedule.at(step); };
  }
  const CosineSchedule schedule{
      .peak = options.learning_rate,
      .floor = options.min_lr,
      .warmup_steps = options.warmup_steps,
      .decay_steps = options.schedule == Schedule::constant ? 0 : options.decay_steps};
  return [schedule](int64_t step) { return schedule.at(step); };
}

}  // namespace lockstep
