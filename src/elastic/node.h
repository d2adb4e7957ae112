// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "elastic/launch_options.h"

namespace lockstep {

/// Runs a node other than node 0. Joins the rendezvous, hosts this node's ranks on request and returns the
/// run's exit code. If the rendezvous is lost, ends its processes and tries to join again until the timeout.
/// stop_signals() ask the run to stop; a second SIGINT ends this node. Throws Error, UserError.
int run_node(const NodeOptions& options);

}  // namespace lockstep
