// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// Runs lockrun_host, the PMIx server of a node's ranks. Connects to the supervisor at `endpoint` as the node
/// with this index of an attempt. Starts a keeper for each rank of the node and serves until the supervisor
/// ends the attempt. Keepers end with this process. Returns the exit code: 1 if the supervisor is gone.
/// Throws Error.
int run_host(const std::string& endpoint, int node);

}  // namespace lockstep
