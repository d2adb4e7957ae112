// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "elastic/launch_options.h"

namespace lockstep {

/// Runs `lockrun --keeper <endpoint>`, which mpirun or srun starts instead of a rank. Connects to the
/// supervisor, starts the rank and reports its progress and its end. Kills the rank if the supervisor or the
/// launcher is gone. Returns 0 once it has reported, so that the launcher does not end the other ranks.
int run_keeper(const std::string& endpoint);

/// Runs a node other than node 0. Joins the rendezvous, hosts this node's ranks on request and returns the
/// run's exit code. If the rendezvous is lost, ends its processes and tries to join again until the timeout.
/// stop_signals() ask the run to stop; a second SIGINT ends this node. Throws Error, UserError.
int run_node(const NodeOptions& options);

}  // namespace lockstep
