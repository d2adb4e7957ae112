// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/world.h"
#include "config/config.h"
#include "parameters/parameter_space.h"
#include "snapshot/run_folder.h"
#include "train/trainer.h"

namespace lockstep {

/// Runs the steps of a training from the snapshot in `folder`, or from the first step. It ends after the last
/// step, or when a rank is asked to stop. Returns the exit code. `config` is the result of settle(); `space`
/// holds the task's parameters. All ranks call it.
int run_training(const Config& config, const World& world, const TrainingTask& task, ParameterSpace& space,
                 RunFolder& folder);

}  // namespace lockstep
