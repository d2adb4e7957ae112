// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "elastic/launch_options.h"

namespace lockstep {

/// Where a launch agent finds the rendezvous that runs commands on nodes.
constexpr const char* agent_endpoint_variable = "LOCKRUN_AGENT_ENDPOINT";

/// What mpirun or srun starts in the place of a rank, `lockrun --keeper <endpoint>`: connects to the
/// supervisor, starts the rank as it is told to, reports how it gets on and ends, and ends it when the
/// supervisor or the launcher is gone. Always returns 0 once it has reported, so that the launcher leaves the
/// other ranks alone.
int run_keeper(const std::string& endpoint);

/// A node other than node 0: joins the rendezvous, runs what it is told to (Open MPI's daemons), and leaves
/// with the run's exit code. Without the rendezvous it ends all of that and tries to join again until the
/// time-out. SIGTERM, SIGINT and SIGUSR1 ask the whole run to stop; a second one ends this node. Throws
/// Error, UserError.
int run_node(const NodeOptions& options);

/// What mpirun calls in the place of ssh, `lockrun --launch-agent <node> <command...>`: runs the command on
/// that node through the rendezvous and returns its exit code. Throws Error if the rendezvous cannot be
/// reached.
int run_launch_agent(const std::string& node, const std::vector<std::string>& command);

}  // namespace lockstep
