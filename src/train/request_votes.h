// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "comm/world.h"
#include "dist/data_parallel.h"

namespace lockstep {

/// The requests of this rank, to stop or to write a snapshot. It sends them to all ranks with the current
/// step.
class RequestVotes {
 public:
  /// Keeps references to its arguments.
  RequestVotes(const World& world, DataParallel& data_parallel)
      : world_(world), data_parallel_(data_parallel) {}

  /// Votes in the current step. The process may have been asked to stop. Returns a text for the user when it
  /// votes for that; else an empty text. `step_seconds` is the duration of the last step.
  std::string cast(bool wants_snapshot, double step_seconds);

 private:
  const World& world_;
  DataParallel& data_parallel_;
  bool has_asked_to_stop_ = false;
  bool has_asked_for_snapshot_ = false;  ///< and has not withdrawn it
};

}  // namespace lockstep
