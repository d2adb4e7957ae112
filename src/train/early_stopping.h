// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "config/config.h"
#include "snapshot/snapshot.h"

namespace lockstep {

/// Whether a run has gone on for train.patience validations without a loss that is below the best before it
/// by more than train.min_delta. A function of the validations so far, so all ranks know it.
class EarlyStopping {
 public:
  explicit EarlyStopping(const TrainConfig& train) : patience_(train.patience), min_delta_(train.min_delta) {}

  /// Goes on from what an earlier start has seen.
  void set_state(const ValidationRecord& record) { record_ = record; }
  const ValidationRecord& state() const { return record_; }

  /// Takes the validation after a step into account.
  void judge(int64_t step, double loss);
  bool is_over() const { return patience_ > 0 && record_.since_best >= patience_; }
  /// For a person; empty unless it is over.
  std::string reason() const;

 private:
  int64_t patience_;
  double min_delta_;
  ValidationRecord record_;
};

}  // namespace lockstep
