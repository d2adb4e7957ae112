// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "config/config.h"
#include "snapshot/stored_snapshot.h"

namespace lockstep {

/// Early stopping: a run is over after train.patience validations in a row without a loss that is better by
/// more than train.min_delta. It depends on the validations only, so all ranks agree.
class EarlyStopping {
 public:
  explicit EarlyStopping(const TrainConfig& train) : patience_(train.patience), min_delta_(train.min_delta) {}

  /// Continues from the validations of an earlier start.
  void set_state(const ValidationRecord& record) { record_ = record; }
  const ValidationRecord& state() const { return record_; }

  /// Compares the validation loss after `step` with the best one and updates state().
  void judge(int64_t step, double loss);
  bool is_over() const { return patience_ > 0 && record_.since_best >= patience_; }
  /// Returns a message for the user: why the run is over. Empty unless is_over().
  std::string reason() const;

 private:
  int64_t patience_;
  double min_delta_;
  ValidationRecord record_;
};

}  // namespace lockstep
