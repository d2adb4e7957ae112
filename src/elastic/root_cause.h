// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "elastic/messages.h"

namespace lockstep {

/// What is known about an attempt that failed.
struct Failure {
  std::vector<RankReport> reports;  ///< of all ranks that were heard of, in the order they ended
  std::string other_cause = {};     ///< what failed besides ranks: the launcher, a node, a deadline
  std::optional<Ending> launcher_ending = {};  ///< if it ended before its ranks
};

/// The rank that made the others fail: the first that ended by itself, not because it waited for others; then
/// one that was stopped, stuck, or behind the others; then one that was lost. Null if no rank is the cause.
const RankReport* root_cause(const Failure& failure);

/// The code that a run which ends with this failure returns: 128 + signal, an exit code, or 1.
int exit_code(const Failure& failure);

/// For a person: who, how, when, its last words, and who never reached which collective.
std::string describe(const Failure& failure);

/// The same for a program.
std::string failure_json(const Failure& failure, int attempt);

/// "rank 3 never entered collective 1841 (exchange, 1048576 bytes)"; empty if all are equally far.
std::string ranks_behind(const std::vector<RankReport>& reports);

}  // namespace lockstep
