// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "comm/world.h"
#include "config/config.h"
#include "dist/data_parallel.h"
#include "train/trainer.h"

namespace lockstep {

/// The first words about a run: ranks and device, data and model, memory, length, and where results go.
void tell_start(const Config& config, const World& world, const TrainingTask& task,
                const DataParallel& data_parallel, int64_t steps);

/// The last words about a run that is complete: its result, and what to type next.
void tell_end(const Config& config, const TrainingTask& task, int64_t steps, const std::string& hash);

}  // namespace lockstep
