// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "config/command_line.h"
#include "measure.h"
#include "train/language_model.h"
#include "train/step_runner.h"
#include "train/trainer.h"

namespace lockstep {

enum Phase { data, forward, backward_pass, communication, update, phases };
constexpr std::array<const char*, phases> phase_names = {"data", "forward", "backward", "communication",
                                                         "norm_clip_update"};

/// Seconds of one step by phase.
using PhaseSeconds = std::array<double, phases>;

double whole(const PhaseSeconds& step);

/// The trainer's step on a CPU, in its own parts with a clock between them.
class TimedTraining {
 public:
  /// Keeps references to the first and the last. `shares_memory`: as TrainingEngine.
  TimedTraining(const Config& config, const World& world, const TrainingTask& task,
                bool shares_memory = true);

  PhaseSeconds step();
  std::vector<PhaseSeconds> steps(int count);
  Optimizer& optimizer() { return *engine_.optimizer; }
  const DataParallel& data_parallel() const { return engine_.data_parallel; }

 private:
  const Config& config_;
  const TrainingTask& task_;
  ParameterSpace space_;
  TrainingEngine engine_;
  Loader loader_;
};

/// Layers x heads x width, and what a step holds; a stage of sharding if there is one.
std::string workload_of(const Config& config);

/// Lets `line` take its own from what the configuration does not know, and sets a training on random
/// tokens and shakespeare_cpu.ini where nothing else is asked for. Throws UserError.
void take_benchmark_arguments(CommandLine& line, Arguments& arguments);

/// The timing of one part of each sample.
template <class Sample, class Part>
Timing timing_over(const std::vector<Sample>& samples, Part part) {
  std::vector<double> seconds;
  for (const Sample& sample : samples) seconds.push_back(part(sample));
  return timing_of(std::move(seconds));
}

}  // namespace lockstep
