// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <sys/types.h>
#include <vector>

#include "lockstep/core/descriptor.h"
#include "lockstep/core/error.h"

namespace lockstep {

/// Returns the signals that ask a program to save and stop: SIGTERM, SIGUSR1, SIGINT, and SIGHUP, the loss of
/// a terminal. SIGHUP is missing if the process began with it ignored, as under nohup.
std::vector<int> stop_signals();

/// Restores the action for SIGHUP with which the process began. UCX, which Open MPI loads at the start or in
/// MPI_Init, installs a handler of its own.
void restore_hangup();

/// Turns stop_signals() into requests to stop. The second SIGINT ends the process. If any rank is asked, the
/// training finishes its current step, batch of a validation or token of a sample. It then writes a snapshot
/// and exits with exit_stopped.
void listen_for_stop_requests();

/// Returns whether this process has received a request to stop.
bool stop_was_requested();

/// Thrown instead of a longer wait before a training has begun. The program exits with exit_stopped.
class StoppedBeforeStart : public Error {
 public:
  using Error::Error;
};

/// Throws StoppedBeforeStart in the main thread if a stop is requested. Other threads write snapshots, which
/// a request must not end.
void end_if_stop_was_requested();

/// Waits. Throws like end_if_stop_was_requested() once a stop is requested.
void wait_unless_stopped(double seconds);

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

/// Returns the processes of a group.
std::vector<pid_t> processes_of(pid_t group);

/// Signals processes of a group that handle the signal; it would kill the others. False if there are none.
bool signal_catchers(pid_t group, int number);

}  // namespace lockstep
