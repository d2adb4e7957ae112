// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace lockstep {

/// The terminal on which stderr of this process appears: its own or its launcher's.
struct Terminal {
  bool shows_errors = false;  ///< stderr ends up on a terminal that can redraw a line
  bool shows_output = false;  ///< stdout, too
  int columns = 80;
};

/// Returns the terminal on which stderr appears. mpirun and lockrun pass on every byte of a rank, so it is
/// that of the outermost launcher on this host. srun counts as a terminal only if scripts/env.sh starts it at
/// one; otherwise it passes on whole lines. A launcher that labels or redirects output does not count.
Terminal find_terminal();

/// Returns whether a launcher's command line (words that end with a zero byte) makes it label or redirect
/// output. A redrawn line would then not arrive as one line.
bool redirects_output(const std::string& command_line);

/// Returns the columns of the terminal that this process's stdout is; 80 if it is none.
size_t output_columns();

}  // namespace lockstep
