// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/replay/recorded_run.h"
#include "lockstep/replay/run_tasks.h"

namespace lockstep {

/// The steps to compute again.
struct Interval {
  int64_t first = 1;
  int64_t last = 0;  ///< 0: the last of the run
};

/// What came out of a verification.
struct Verification {
  int64_t first = 0, last = 0;  ///< the steps that were held against the record
  int64_t began_at = 0;         ///< steps of the snapshot that it began with; 0: the initial values
  int64_t snapshots = 0;        ///< how many snapshots have the bits that were computed
  int64_t validations = 0;      ///< how many validation losses
  std::string link = {};        ///< the chain of hashes after the last step; empty if the run has none
  int64_t failed_step = -1;     ///< the first step that does not hold; 0: the settings or data; -1: all hold
  std::string problem = {};     ///< what does not hold there

  bool holds() const { return failed_step < 0; }
};

/// Holds the texts of a run against each other, without computing: the settings, data, builds and losses of
/// the record against the chain of hashes in each snapshot. Reports the end of the first part of the chain
/// that does not hold.
Verification verify_record(const RecordedRun& run);

/// Computes an interval again and holds each step against the record: the bits of the loss, the norm, the
/// learning rate and the validation loss. It also holds the snapshots on the way against the steps, and the
/// hash of the final parameters. Throws UserError for an interval that the run does not have.
Verification verify_steps(const RecordedRun& run, const RunTasks& tasks, const World& world,
                          const Interval& interval);

std::string describe(const RecordedRun& run, const Verification& verification);

}  // namespace lockstep
