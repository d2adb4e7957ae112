// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lockstep {

/// From now on SIGTERM and SIGUSR1 ask this process to stop instead of ending it. A training that is asked,
/// on any of its ranks, finishes the step, writes a snapshot and leaves with exit_stopped.
void listen_for_stop_requests();

/// Whether one of the two has come.
bool stop_was_requested();

}  // namespace lockstep
