// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// The terminal on which a person reads what this process writes to stderr, its own or its launcher's.
struct Terminal {
  bool shows_errors = false;  ///< stderr ends up on a terminal that can redraw a line
  bool shows_output = false;  ///< stdout, too
  int columns = 80;
};

/// Where stderr ends up. A rank's is a pipe to mpirun or lockrun, which pass on every byte: then it is where
/// the outermost of them on this host writes. srun passes on whole lines only, unless scripts/env.sh starts
/// it at a terminal, and a launcher may have been told to label or redirect: these count as no terminal.
Terminal find_terminal();

/// Whether a launcher's command line (words that end with a zero byte) asks it to label or redirect what its
/// processes write, so that a line that is redrawn would not arrive as one.
bool redirects_output(const std::string& command_line);

}  // namespace lockstep
