// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/world.h"
#include "config/config.h"
#include "snapshot/run_folder.h"
#include "train/trainer.h"

namespace lockstep {

/// Runs the steps of a training that was opened, from where its folder says to its end, or until a rank is
/// asked to stop. Returns the exit code. `config` is settled, `space` holds the task's parameters. All ranks
/// call it.
int run_training(const Config& config, const World& world, const TrainingTask& task, ParameterSpace& space,
                 RunFolder& folder);

}  // namespace lockstep
