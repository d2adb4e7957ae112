// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "snapshot/stored_snapshot.h"

namespace lockstep {

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
