// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lockstep {

// The exit codes that mean something to whoever started a program. 0 is done; any other is a failure.
constexpr int exit_usage = 2;          ///< bad input: starting it again does not help
constexpr int exit_stopped = 75;       ///< stopped on request after a snapshot: start it again to go on
constexpr int exit_interrupted = 130;  ///< ended at once by a second Ctrl-C

}  // namespace lockstep
