// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/comm/world.h"
#include "lockstep/job/job.h"
#include "lockstep/parameters/parameter_space.h"
#include "lockstep/snapshot/run_folder.h"
#include "lockstep/train/task.h"

namespace lockstep {

/// The parts of a run. The struct refers to its members' objects.
struct RunParts {
  const Job& job;
  const World& world;
  const TrainingTask& task;
  ParameterSpace& space;  ///< holds the task's parameters
  RunFolder& folder;
  double planned_bytes = 0.0;  ///< the planned peak memory of a rank; 0: no plan
};

/// Runs the steps of a training from the snapshot in the folder, or from the first step. It ends after the
/// last step, or when a rank is asked to stop. Returns the exit code. All ranks call it.
int run_training(const RunParts& parts);

}  // namespace lockstep
