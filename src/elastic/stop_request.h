// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <optional>
#include <poll.h>
#include <string>

#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"
#include "lockstep/core/log.h"
#include "lockstep/program/signals.h"

namespace lockstep {

/// Requests to stop from a user, a batch system or a node. Construct it before other threads start.
class StopRequest {
 public:
  /// For poll(): readable while a signal waits.
  int descriptor() const { return signals_.descriptor(); }
  /// Returns whether a signal waits.
  bool has_signal() const {
    pollfd entry{descriptor(), POLLIN, 0};
    return ::poll(&entry, 1, 0) > 0;
  }
  /// Reads the waiting signals.
  void hear() {
    while (const auto number = signals_.next()) {
      // Batch systems repeat requests with several signals. Only a repeated SIGINT, from a user, ends at
      // once.
      interruptions_ += *number == SIGINT;
      ask();
    }
  }
  /// Asks the ranks to write a snapshot and exit, as SIGTERM, SIGUSR1, SIGHUP and the first SIGINT do.
  /// Repeated requests count once. `where` names the node that asked, if it is not this one.
  void ask(const std::string& where = "") {
    if (asked_) return;
    asked_ = Clock::now();
    if (!where.empty()) log_info(concat("lockrun: ", where, " was asked to stop the run"));
  }

  bool is_asked() const { return asked_.has_value(); }
  double seconds_since_asked() const { return asked_ ? seconds_since(*asked_) : 0.0; }
  /// True after the second SIGINT: everything ends at once, with exit code 130.
  bool is_cancelled() const { return interruptions_ > 1; }

 private:
  Signals signals_{stop_signals()};
  std::optional<Clock::time_point> asked_;
  int interruptions_ = 0;
};

}  // namespace lockstep
