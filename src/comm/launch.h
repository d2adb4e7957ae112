// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "comm/world.h"

namespace lockstep {

/// run_program() for a program of several ranks. Started by mpirun or srun, it runs `body` on this process's
/// rank; started by hand, on `ranks` threads of this process (0: one a core). Returns the exit code, of the
/// first rank that has one. UserError if a launcher started another number of ranks than was asked for.
int launch_ranks(int ranks, const std::function<int(const World&)>& body);

}  // namespace lockstep
