// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

#include "train/trainer.h"

namespace lockstep {

/// Mean over a data set of each sample's loss, without dropout: batches of `batch_size` in order, summed in
/// double in index order, so that it does not depend on ranks. Nothing, on all ranks, if one of them was
/// asked to stop: they agree on it after each batch. `progress` hears how many of this rank's batches are
/// done, first that none is.
std::optional<double> evaluate(const World& world, const TrainingTask& task, const Dataset& data,
                               int64_t batch_size,
                               const std::function<void(int64_t done, int64_t batches)>& progress = {});

}  // namespace lockstep
