// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/job/job.h"
#include "lockstep/train/task.h"

namespace lockstep {

/// Decides how a GPU computes each matmul of a step: once for all ranks, before the first step. A resumed run
/// keeps the plans of its snapshot (`from_snapshot`; empty if there is none). A new run uses cuBLASLt's first
/// choices. With train.tune_matmul it uses the plans that earlier runs saved in a file, and rank 0 times new
/// shapes in a forward and backward of its own.
void choose_matmul_plans(const Job& job, const World& world, const TrainingTask& task,
                         const std::string& from_snapshot);

}  // namespace lockstep
