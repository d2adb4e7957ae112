// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/core/clock.h"
#include "lockstep/data/loader.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/parameters/placed_tensors.h"
#include "lockstep/replay/micro_batch.h"
#include "lockstep/replay/recorded_run.h"
#include "lockstep/replay/run_tasks.h"
#include "lockstep/train/step_runner.h"

namespace lockstep {

/// A step that was computed again.
struct ReplayedStep {
  int64_t step = 0;
  StepResult result;
  double learning_rate = 0.0;

  std::string loss_bits() const;
};

/// A run whose steps this process computes again, whatever ranks and sharding it had. It begins at a snapshot
/// of the run, or at the initial values. It writes nothing.
class ReplayedRun {
 public:
  /// Makes a model with its initial values. Keeps references.
  ReplayedRun(const RecordedRun& run, const RunTasks& tasks, const World& world);
  ReplayedRun(const ReplayedRun&) = delete;
  ReplayedRun& operator=(const ReplayedRun&) = delete;

  /// Loads the newest snapshot of at most `steps` steps, or the initial values if there is none.
  void load(int64_t steps);
  /// Loads this snapshot.
  void load(const StoredSnapshot& snapshot);
  /// Loads the initial values.
  void begin();

  /// Returns how many steps are done.
  int64_t steps_done() const { return steps_done_; }
  /// Returns the micro-batches of the next step, those of replica 0 first.
  std::vector<MicroBatchInput> next_inputs();
  /// Computes the next step. Logs the progress every few seconds.
  ReplayedStep next();
  /// Computes steps until this many are done.
  void go_to(int64_t steps) {
    while (steps_done_ < steps) next();
  }
  /// Returns the validation loss after the steps that are done.
  double validate();
  /// Returns the parameters and the optimizer's states after the steps that are done.
  const PlacedTensors& tensors() const { return parts_->tensors; }
  const ParameterSpace& space() const { return parts_->space; }
  const TrainingTask& task() const { return *parts_->task; }
  /// Returns how many updates were made, and the loss scale of fp16.
  int64_t updates() const { return parts_->engine.optimizer->steps_taken(); }
  std::optional<GradScale> grad_scale() const {
    return parts_->engine.scaler ? std::optional(parts_->engine.scaler->state()) : std::nullopt;
  }
  uint64_t hash() const;

 private:
  /// A model and what trains it. It begins with initial values.
  struct Parts {
    Parts(const RunTasks& tasks, const World& world);

    std::shared_ptr<TrainingTask> task;
    ParameterSpace space;
    TrainingEngine engine;
    SpaceTensors tensors;
    Loader loader;
    StepRunner runner;
  };

  const RecordedRun& run_;
  const RunTasks& tasks_;
  const World& world_;
  std::unique_ptr<Parts> parts_;
  std::function<double(int64_t)> learning_rate_;  ///< takes the index of a step
  int64_t steps_done_ = 0;
  Clock::time_point logged_ = Clock::now();  ///< the last message about the progress
};

}  // namespace lockstep
