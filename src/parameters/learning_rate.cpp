// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parameters/learning_rate.h"

#include <algorithm>

namespace lockstep {

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
