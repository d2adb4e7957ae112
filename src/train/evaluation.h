// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/data/dataset.h"
#include "lockstep/dist/data_parallel.h"
#include "lockstep/job/job.h"
#include "lockstep/snapshot/stored_snapshot.h"
#include "lockstep/train/task.h"

namespace lockstep {

/// Returns the weighted mean loss of a data set, without dropout. Batches of `batch_size` samples are summed
/// in double in index order, so the result does not depend on ranks. All ranks return nothing if one was
/// asked to stop; they check before each batch. Before each of this rank's batches `progress` gets the number
/// that is done.
std::optional<double> evaluate(const World& world, DataParallel& data_parallel, const TrainingTask& task,
                               const Dataset& data, int64_t batch_size,
                               const std::function<void(int64_t done, int64_t batches)>& progress = {});

/// Generates the task's sample text and passes it to `print` on rank 0, which generates it while the others
/// wait for each token. With full sharding all ranks generate the same text, because they gather the model
/// together. All ranks return false if one was asked to stop. The text is cut then.
bool generate_sample(const World& world, DataParallel& data_parallel, const TrainingTask& task,
                     const std::function<void(const std::string&)>& print);

/// Early stopping: a run is over after train.patience validations in a row without a loss that is better by
/// more than train.min_delta. It depends on the validations only, so all ranks agree.
struct EarlyStopping {
  int64_t patience = 0;  ///< train.patience; 0: the run never stops early
  double min_delta = 0.0;
  ValidationRecord record = {};

  /// Compares the validation loss after `step` with the best one and updates the record.
  void judge(int64_t step, double loss);
  bool is_over() const { return patience > 0 && record.since_best >= patience; }
  /// Returns a message for the user: why the run is over. Empty unless is_over().
  std::string reason() const;
};

}  // namespace lockstep
