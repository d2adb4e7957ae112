// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

namespace lockstep {

/// The processes that execute `program` with a run's folder among their arguments, in ascending order.
std::vector<pid_t> find_ranks(const std::string& program, const std::string& folder);

/// All processes but this one that have the folder among their arguments or in their environment, which a
/// launcher hands on to whatever it starts.
std::vector<pid_t> find_processes(const std::string& folder);

}  // namespace lockstep
