// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "elastic/node_options.h"

namespace lockstep {

/// A node other than node 0: joins the rendezvous, runs what it is told to (Open MPI's daemons), and leaves
/// with the run's exit code. Without the rendezvous it ends all of that and tries to join again until the
/// time-out. SIGTERM, SIGINT and SIGUSR1 ask the whole run to stop; a second one ends this node. Throws
/// Error, UserError.
int run_node(const NodeOptions& options);

}  // namespace lockstep
