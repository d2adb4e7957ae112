// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// Runs lockrun_host, the PMIx server of a node's ranks. Connects to the supervisor at `endpoint` as the node
/// with this index of an attempt. Starts a keeper for each rank of the node and serves until the supervisor
/// ends the attempt. Then it ends the keepers and returns 0. If the supervisor is gone it exits with 1, and
/// the keepers end by themselves. Throws Error.
int run_host(const std::string& endpoint, int node);

}  // namespace lockstep
