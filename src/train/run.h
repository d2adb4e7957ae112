// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "comm/world.h"
#include "config/config.h"
#include "dist/data_parallel.h"
#include "snapshot/run_folder.h"
#include "train/trainer.h"

namespace lockstep {

/// Runs the steps of a training that was opened, from where its folder says to its end, or until a rank is
/// asked to stop. Returns the exit code. `config` is settled, `space` holds the task's parameters. All ranks
/// call it.
int run_training(const Config& config, const World& world, const TrainingTask& task, ParameterSpace& space,
                 RunFolder& folder);

/// Mean over a data set of each sample's loss, by its weight, without dropout: batches of `batch_size` in
/// order, summed in double in index order, so that it does not depend on ranks. Nothing, on all ranks, if one
/// of them was asked to stop: they agree on it after each batch. `progress` hears how many of this rank's
/// batches are done, first that none is.
std::optional<double> evaluate(const World& world, DataParallel& data_parallel, const TrainingTask& task,
                               const Dataset& data, int64_t batch_size,
                               const std::function<void(int64_t done, int64_t batches)>& progress = {});

/// The first words about a run: ranks and device, data and model, memory, length, and where results go.
void log_start(const Config& config, const World& world, const TrainingTask& task,
               const DataParallel& data_parallel, int64_t steps);

/// Says beside its plan, if there is one, what the rank that took most had at most. All ranks call it.
void log_memory(const World& world, const TrainingTask& task);

/// The last words about a run that is complete: its result, and what to type next; and the reason why it is,
/// where that is not its length.
void log_end(const Config& config, const TrainingTask& task, int64_t steps, const std::string& hash,
             const std::string& reason = "");

/// Decides on a GPU how each product of a step is computed, once for all ranks, before the first step. A
/// resumed run keeps the plans of its snapshot (`from_snapshot`, empty if there is none). A new one has none
/// yet, and products take the library's first choices; with train.tune_matmul it takes those that earlier
/// runs kept in a file, and rank 0 times what is new in a forward and backward of its own.
void settle_matmul_plans(const Config& config, const World& world, const TrainingTask& task,
                         const std::string& from_snapshot);

}  // namespace lockstep
