// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/job/load_job.h"
#include "lockstep/program/command_line.h"
#include "lockstep/train/language_task.h"
#include "lockstep/train/step_runner.h"
#include "lockstep/train/trainer.h"
#include "measure.h"

namespace lockstep {

enum Phase { data, forward, backward_pass, communication, update, phases };
constexpr std::array<const char*, phases> phase_names = {"data", "forward", "backward", "communication",
                                                         "norm_clip_update"};

/// Seconds of one step by phase.
using PhaseSeconds = std::array<double, phases>;

double whole(const PhaseSeconds& step);

/// A training on a CPU that times each phase of the trainer's step.
class TimedTraining {
 public:
  /// Keeps references to `job` and `task`. TrainingEngine explains `shares_memory`.
  TimedTraining(const Job& job, const World& world, const TrainingTask& task, bool shares_memory = true);

  PhaseSeconds step();
  std::vector<PhaseSeconds> steps(int count);
  Optimizer& optimizer() { return *engine_.optimizer; }
  const DataParallel& data_parallel() const { return engine_.data_parallel; }

 private:
  const Job& job_;
  const TrainingTask& task_;
  ParameterSpace space_;
  TrainingEngine engine_;
  Loader loader_;
};

/// Returns layers x heads x width, the size of a step and the sharding stage, if any.
std::string workload_of(const Job& job);

/// Removes the options of `line` from `arguments`. Sets the defaults of a benchmark: random tokens on the CPU
/// and shakespeare_cpu.ini. The user's settings override them. Throws UserError.
void take_benchmark_arguments(CommandLine& line, Arguments& arguments);

/// Returns the timing of one part of each sample.
template <class Sample, class Part>
Timing timing_over(const std::vector<Sample>& samples, Part part) {
  std::vector<double> seconds;
  for (const Sample& sample : samples) seconds.push_back(part(sample));
  return timing_of(std::move(seconds));
}

}  // namespace lockstep
