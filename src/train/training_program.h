// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/job/job.h"
#include "lockstep/parameters/optimizer.h"
#include "lockstep/train/task.h"

namespace lockstep {

/// The inputs of a task. The references are valid until the program ends.
struct TaskInput {
  const Job& job;
  const World& world;
  const std::vector<std::string>& arguments;  ///< one for each of TrainingProgram::arguments
};

/// A program that trains a model of one's own.
struct TrainingProgram {
  std::string about = {};                            ///< the first lines of --help: what the program trains
  std::map<std::string, std::string> defaults = {};  ///< keys whose defaults differ from those of train_gpt
  std::vector<std::string> arguments = {};  ///< names of the arguments that are no keys, such as "FILE"
  std::function<std::unique_ptr<TrainingTask>(const TaskInput& input)> make_task;  ///< called on every rank
};

/// Runs the program with the arguments of main(): reads the keys of --help, joins the other ranks and calls
/// train(). Refuses keys of a language model and its text on the command line. Returns the exit code of
/// main(): 0 done, 2 wrong input, 75 stopped on request, another one for failures.
int run_training_program(int argc, const char* const* argv, const TrainingProgram& program);

/// Returns AdamW with the keys train.beta1, train.beta2 and train.weight_decay, for TrainingTask::
/// make_optimizer().
std::unique_ptr<Optimizer> make_adamw(ParameterSpace& space, const OptimizerOptions& options);

}  // namespace lockstep
