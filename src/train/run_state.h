// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/core/clock.h"
#include "lockstep/job/job.h"
#include "lockstep/metrics/metrics.h"
#include "lockstep/metrics/step_trace.h"
#include "lockstep/train/evaluation.h"
#include "lockstep/train/progress.h"
#include "lockstep/train/run_log.h"
#include "lockstep/train/task.h"

namespace lockstep {

/// Returns the peak of all ranks together, in floating-point operations per second; 0 if it is not known.
double peak_flops(const Job& job, const World& world);

/// Returns the file for the spans of this rank's steps; empty: they are not recorded.
std::string trace_path(const Job& job, const World& world);

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

/// A step that was started and whose result is not known yet.
struct StartedStep {
  StepMetrics metrics = {};  ///< the fields that are known before the result
  int64_t samples_of_replica = 0;
  Clock::time_point begin;
};

/// The position of a run in its steps.
struct RunPosition {
  int64_t total = 0;  ///< steps of the run; early stopping shortens it
  int64_t first = 0;  ///< steps that were done before this start
  int64_t next = 0;   ///< index of the step that starts next
  int64_t last = 0;   ///< the last step whose result is known
  std::deque<StartedStep> started = {};

  bool is_due(int64_t step, int64_t every) const {
    return every >= 0 && (step == total || (every > 0 && step % every == 0));
  }
};

/// Requests to stop and to write a snapshot.
struct RunRequests {
  bool has_asked_to_stop = false;       ///< this rank has voted for it
  bool has_asked_for_snapshot = false;  ///< and has not withdrawn it
  bool is_stopping = false;             ///< a rank has asked, and all ranks know it
};

/// Validations of a run, which may end it early.
struct RunValidations {
  EarlyStopping early_stopping;
  bool is_pending = false;  ///< the newest snapshot does not contain the validation of its step
};

/// The output of a run besides snapshots. Rank 0 has the metrics and the progress display.
struct RunOutput {
  StepMeter meter;
  PeakMemoryLog peak_memory;
  StepTrace trace;
  std::unique_ptr<MetricsWriter> metrics = {};  ///< the threads of snapshots use it
  std::unique_ptr<Progress> progress = {};

  void print(const std::string& text) const {
    if (progress) progress->print(text);
  }
};

}  // namespace lockstep
