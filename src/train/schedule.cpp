// SPDX-License-Identifier: Apache-2.0
#include "train/schedule.h"

#include <algorithm>

#include "parameters/learning_rate.h"

namespace lockstep {

std::function<double(int64_t)> schedule_of(const TrainConfig& train) {
  if (train.schedule == "wsd") {
    const int64_t room = std::max<int64_t>(0, train.decay_steps - train.warmup_steps);
    const int64_t wanted = train.cooldown_steps > 0 ? train.cooldown_steps : (train.decay_steps + 9) / 10;
    const WarmupStableDecay schedule{.peak = train.learning_rate,
                                     .floor = train.min_lr,
                                     .warmup_steps = train.warmup_steps,
                                     .decay_steps = train.decay_steps,
                                     .cooldown_steps = std::min(room, wanted)};
    return [schedule](int64_t step) { return schedule.at(step); };
  }
  const CosineSchedule schedule{.peak = train.learning_rate,
                                .floor = train.min_lr,
                                .warmup_steps = train.warmup_steps,
                                .decay_steps = train.schedule == "constant" ? 0 : train.decay_steps};
  return [schedule](int64_t step) { return schedule.at(step); };
}

}  // namespace lockstep
