// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <sys/types.h>

namespace lockstep {

/// Returns the stacks of all threads of a process group, as eu-stack or gdb prints them within `seconds`. For
/// a process that neither can read, returns what the kernel knows about each thread.
std::string stacks_of_group(pid_t group, double seconds);

}  // namespace lockstep
