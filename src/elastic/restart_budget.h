// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

/// How often a run may still be restarted: so many times without getting on, i.e. without a newer snapshot.
class RestartBudget {
 public:
  explicit RestartBudget(int most_restarts) : most_restarts_(most_restarts) {}

  /// A generation failed; its newest snapshot was of this step (-1: none). Returns the seconds to wait before
  /// the next one, 0.2 doubled with each failure up to 30; nothing if no restart is left.
  std::optional<double> next_wait(int64_t snapshot_step);
  int left() const { return most_restarts_ - used_; }

 private:
  int most_restarts_;
  int used_ = 0;
  int64_t newest_snapshot_ = -1;
};

}  // namespace lockstep
