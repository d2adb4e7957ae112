// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/comm/world.h"
#include "lockstep/core/clock.h"
#include "lockstep/dist/data_parallel.h"

namespace lockstep {

/// A check, by hash, that all ranks have the same parameters. It finds a rank that computes or stores wrong
/// values at the next snapshot instead of after the run. All ranks call its functions in the same order.
class ParameterCheck {
 public:
  /// Keeps references to all arguments.
  ParameterCheck(const World& world, const ParameterSpace& space, DataParallel& data_parallel)
      : world_(world), space_(space), data_parallel_(data_parallel) {}

  /// Returns this rank's hash after comparing those of all ranks. Throws Error naming the ranks that differ
  /// from the majority. Without a majority it names all ranks.
  uint64_t compare(int64_t step);
  /// Calls compare() before a snapshot, unless that would take more than a hundredth of the time since the
  /// last snapshot. Rank 0's clock decides.
  void compare_if_cheap(int64_t step);

 private:
  const World& world_;
  const ParameterSpace& space_;
  DataParallel& data_parallel_;
  double seconds_ = 0.0;  ///< duration of the last compare()
  Clock::time_point last_ = Clock::now();
};

}  // namespace lockstep
