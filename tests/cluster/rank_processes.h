// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

namespace lockstep {

/// Returns the processes that execute `program` with a run's folder among their arguments, in ascending
/// order.
std::vector<pid_t> find_ranks(const std::string& program, const std::string& folder);

/// Returns all other processes that have the folder among their arguments or in their environment. A launcher
/// passes its environment to every process that it starts.
std::vector<pid_t> find_processes(const std::string& folder);

}  // namespace lockstep
