// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// What mpirun or srun starts in the place of a rank, `lockrun --keeper <endpoint>`: connects to the
/// supervisor, starts the rank as it is told to, reports how it gets on and ends, and ends it when the
/// supervisor or the launcher is gone. Always returns 0 once it has reported, so that the launcher leaves the
/// other ranks alone.
int run_keeper(const std::string& endpoint);

}  // namespace lockstep
