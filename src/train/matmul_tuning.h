// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "comm/world.h"
#include "config/config.h"
#include "train/trainer.h"

namespace lockstep {

/// Decides on a GPU how each product of a step is computed, once for all ranks, before the first step. A
/// resumed run keeps the plans of its snapshot (`from_snapshot`, empty if there is none). A new one takes
/// those that earlier runs on this kind of GPU found, so that it has their bits; shapes that are new are
/// timed by rank 0 in a forward and backward of its own, and kept beside the others. With train.tune_matmul =
/// false nothing is timed. On the CPU nothing is to do.
void settle_matmul_plans(const Config& config, const World& world, const TrainingTask& task,
                         const std::string& from_snapshot);

}  // namespace lockstep
