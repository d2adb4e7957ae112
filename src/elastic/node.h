// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "elastic/launch_options.h"

namespace lockstep {

/// The environment variable with the endpoint at which launch agents reach the rendezvous.
constexpr const char* agent_endpoint_variable = "LOCKRUN_AGENT_ENDPOINT";

/// Runs `lockrun --keeper <endpoint>`, which mpirun or srun starts instead of a rank. Connects to the
/// supervisor, starts the rank and reports its progress and its end. Kills the rank if the supervisor or the
/// launcher is gone. Returns 0 once it has reported, so that the launcher does not end the other ranks.
int run_keeper(const std::string& endpoint);

/// Runs a node other than node 0. Joins the rendezvous, starts Open MPI's daemons on request and returns the
/// run's exit code. If the rendezvous is lost, ends its processes and tries to join again until the timeout.
/// stop_signals() ask the run to stop; a second SIGINT ends this node. Throws Error, UserError.
int run_node(const NodeOptions& options);

/// Runs `lockrun --launch-agent <node> <command...>`, which mpirun calls instead of ssh: the command on that
/// node, through the rendezvous. Returns its exit code. Throws Error if the rendezvous cannot be reached.
int run_launch_agent(const std::string& node, const std::vector<std::string>& command);

}  // namespace lockstep
