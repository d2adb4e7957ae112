// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// Runs `lockrun --keeper <endpoint>`, which the launcher starts instead of a rank. Connects to the
/// supervisor, starts the rank and reports its progress and its end. Kills the rank if the supervisor or the
/// launcher is gone. Returns 0 once it has reported, so that the launcher does not end the other ranks.
int run_keeper(const std::string& endpoint);

}  // namespace lockstep
