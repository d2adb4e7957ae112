// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <unistd.h>

#include "program/output_relay.h"

namespace lockstep {

/// Passes the output of a launcher on to lockrun's own. mpirun 4.1.4 crashes when its reader is gone.
struct RankOutput {
  OutputRelay output{STDOUT_FILENO}, errors{STDERR_FILENO};

  /// Flushes both: see OutputRelay::flush().
  bool flush(double seconds, int interruption = -1) const {
    const bool is_flushed = output.flush(seconds, interruption);
    return errors.flush(seconds, interruption) && is_flushed;
  }
  /// Returns whether the readers of lockrun's output are slower than the ranks. mpirun buffers without limit.
  bool is_behind() const { return std::max(output.seconds_behind(), errors.seconds_behind()) > 0.1; }
};

}  // namespace lockstep
