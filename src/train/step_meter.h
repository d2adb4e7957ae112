// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "comm/world.h"
#include "config/config.h"
#include "core/clock.h"
#include "metrics/metrics.h"
#include "train/trainer.h"

namespace lockstep {

/// Returns the peak of all ranks together, in floating-point operations per second; 0 if it is not known.
double peak_flops(const Config& config, const World& world);

/// A meter of the time, speed and memory of steps. On a GPU a step starts before the one before it ends, so
/// its time counts from the later of the two.
class StepMeter {
 public:
  /// Keeps a reference to `task`. `peak_flops` is that of all ranks; 0: not known.
  StepMeter(const TrainingTask& task, double peak_flops) : task_(task), peak_flops_(peak_flops) {}

  /// Adds the measurements of a step from `begin` until now. `samples` are those of all replicas.
  void measure(StepMetrics& metrics, Clock::time_point begin, int64_t samples);
  /// Leaves the time until now out of the next step: a validation ended.
  void skip() { last_end_ = Clock::now(); }
  /// Returns the duration of the last step.
  double step_seconds() const { return step_seconds_; }

 private:
  const TrainingTask& task_;
  double peak_flops_;
  Clock::time_point last_end_;
  double step_seconds_ = 0.0;
};

}  // namespace lockstep
