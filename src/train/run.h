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

/// Runs the steps of a training from the snapshot in `folder`, or from the first step. It ends after the last
/// step, or when a rank is asked to stop. Returns the exit code. `config` is the result of settle(); `space`
/// holds the task's parameters. All ranks call it.
int run_training(const Config& config, const World& world, const TrainingTask& task, ParameterSpace& space,
                 RunFolder& folder);

/// Returns the weighted mean loss of a data set, without dropout. Batches of `batch_size` samples are summed
/// in double in index order, so the result does not depend on ranks. All ranks return nothing if one was
/// asked to stop; they check before each batch. Before each of this rank's batches `progress` gets the number
/// that is done.
std::optional<double> evaluate(const World& world, DataParallel& data_parallel, const TrainingTask& task,
                               const Dataset& data, int64_t batch_size,
                               const std::function<void(int64_t done, int64_t batches)>& progress = {});

/// Logs the start of a run on rank 0: ranks and device, data and model, memory, length, folder of the
/// results.
void log_start(const Config& config, const World& world, const TrainingTask& task,
               const DataParallel& data_parallel, int64_t steps);

/// Logs the peak memory of the rank with the highest peak, next to the plan. Does nothing without a plan. All
/// ranks call it.
void log_memory(const World& world, const TrainingTask& task);

/// Logs the end of a complete run: its result, and the command that uses the model. `reason` says why the run
/// ended before its last step; it may be empty.
void log_end(const Config& config, const TrainingTask& task, int64_t steps, const std::string& hash,
             const std::string& reason = "");

/// Decides how a GPU computes each matmul of a step: once for all ranks, before the first step. A resumed run
/// keeps the plans of its snapshot (`from_snapshot`; empty if there is none). A new run uses cuBLASLt's first
/// choices. With train.tune_matmul it uses the plans that earlier runs saved in a file, and rank 0 times new
/// shapes in a forward and backward of its own.
void settle_matmul_plans(const Config& config, const World& world, const TrainingTask& task,
                         const std::string& from_snapshot);

}  // namespace lockstep
