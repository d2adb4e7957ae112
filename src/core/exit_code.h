// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lockstep {

// Exit codes that the caller of a program can act on. 0 is done; any other code is a failure.
constexpr int exit_usage = 2;          ///< bad input: a restart does not help
constexpr int exit_stopped = 75;       ///< stopped on request after a snapshot: start it again to resume
constexpr int exit_interrupted = 130;  ///< ended at once by a second Ctrl-C

}  // namespace lockstep
