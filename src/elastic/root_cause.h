// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/elastic/messages.h"

namespace lockstep {

/// Facts about an attempt that failed.
struct AttemptFailure {
  std::vector<RankReport> reports;             ///< of all ranks that reported, in the order of their ends
  std::string other_cause = {};                ///< a failure outside of ranks: launcher, node, deadline
  std::optional<Ending> launcher_ending = {};  ///< if the launcher ended before its ranks
};

/// Returns the rank that made the others fail; null if no rank is the cause. The cause is the rank that
/// computed wrong, else the first that ended on its own and not because it waited for others. Otherwise it is
/// a rank that was stopped, stuck, lost or left with 75, in this order. If that rank was stuck, or all waited
/// for others, the cause is instead a rank that is behind in collectives.
const RankReport* root_cause(const AttemptFailure& failure);

/// Returns the exit code of a run that ends with this failure: 128 + signal, an exit code, or 1.
int exit_code(const AttemptFailure& failure);

/// Describes a failure: the rank, how and when it ended, ranks behind in collectives, and its last lines.
std::string describe(const AttemptFailure& failure);

/// Describes a failure as JSON, for programs.
std::string failure_json(const AttemptFailure& failure, int attempt);

/// Lists the ranks that are behind: "rank 3 never entered collective 1841 (exchange, 1048576 bytes)". Empty
/// if all ranks have entered the same last collective.
std::string ranks_behind(const std::vector<RankReport>& reports);

}  // namespace lockstep
