// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <sys/types.h>
#include <vector>

#include "core/descriptor.h"

namespace lockstep {

/// Returns the signals that ask a program to save and stop: SIGTERM, SIGUSR1, SIGINT, and SIGHUP, the loss of
/// a terminal. SIGHUP is missing if it is ignored, as under nohup.
std::vector<int> stop_signals();

/// Signals to read from a descriptor. Construct it before other threads, which inherit the blocked signals.
class Signals {
 public:
  explicit Signals(const std::vector<int>& numbers);

  /// For poll(): readable while a signal waits.
  int descriptor() const { return descriptor_.get(); }
  /// Returns the number of the next signal; nothing if none waits.
  std::optional<int> next();

 private:
  Descriptor descriptor_;
};

/// Signals processes of a group that handle the signal; it would kill the others. False if there are none.
bool signal_catchers(pid_t group, int number);

}  // namespace lockstep
