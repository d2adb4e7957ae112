// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "comm/world.h"
#include "core/clock.h"
#include "job/job.h"
#include "metrics/metrics.h"
#include "train/task.h"

namespace lockstep {

/// Returns the peak of all ranks together, in floating-point operations per second; 0 if it is not known.
double peak_flops(const Job& job, const World& world);

/// A meter of the time, speed and memory of steps. On a GPU a step starts before the one before it ends, so
/// its time counts from the later of the two.
class StepMeter {
 public:
  /// `peak_flops` is that of all ranks; 0: not known.
  StepMeter(const TaskFacts& task, double peak_flops)
      : tokens_per_sample_(task.tokens_per_sample),
        flops_per_token_(task.flops_per_token),
        peak_flops_(peak_flops) {}

  /// Adds the measurements of a step from `begin` until now. `samples` are those of all replicas.
  void measure(StepMetrics& metrics, Clock::time_point begin, int64_t samples);
  /// Leaves the time until now out of the next step: a validation ended.
  void skip() { last_end_ = Clock::now(); }
  /// Returns the duration of the last step.
  double step_seconds() const { return step_seconds_; }

 private:
  int64_t tokens_per_sample_;
  double flops_per_token_;
  double peak_flops_;
  Clock::time_point last_end_;
  double step_seconds_ = 0.0;
};

}  // namespace lockstep
