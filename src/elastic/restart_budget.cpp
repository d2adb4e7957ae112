// SPDX-License-Identifier: Apache-2.0
#include "elastic/restart_budget.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

std::optional<double> RestartBudget::next_wait(int64_t snapshot_step) {
  if (snapshot_step > newest_snapshot_) {
    newest_snapshot_ = snapshot_step;
    used_ = 0;
  }
  if (used_ >= most_restarts_) return std::nullopt;
  constexpr double first_seconds = 0.2, most_seconds = 30.0;
  return std::min(most_seconds, first_seconds * std::exp2(std::min(used_++, 20)));
}

}  // namespace lockstep
