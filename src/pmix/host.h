// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// Runs lockrun_host: connects to the supervisor at `endpoint` as the node with this index of an attempt,
/// starts a keeper for each rank of the node, and is their PMIx server until the supervisor ends the attempt.
/// Returns the exit code: 1 if the supervisor is gone. Keepers end with this process. Throws Error.
int run_host(const std::string& endpoint, int node);

}  // namespace lockstep
