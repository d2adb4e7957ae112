// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace lockstep {

/// Where a launch agent finds the rendezvous that runs commands on nodes.
constexpr const char* agent_endpoint_variable = "LOCKRUN_AGENT_ENDPOINT";
/// The secret of the run, for its agents and keepers.
constexpr const char* secret_variable = "LOCKRUN_SECRET";

/// What mpirun calls in the place of ssh, `lockrun --launch-agent <node> <command...>`: runs the command on
/// that node through the rendezvous and returns its exit code. Throws Error if the rendezvous cannot be
/// reached.
int run_launch_agent(const std::string& node, const std::vector<std::string>& command);

}  // namespace lockstep
