// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <vector>

namespace lockstep {

/// Returns the processes of a group.
std::vector<pid_t> processes_of(pid_t group);

/// Signals processes of a group that handle the signal; it would kill the others. False if there are none.
bool signal_catchers(pid_t group, int number);

}  // namespace lockstep
