// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "core/clock.h"
#include "core/descriptor.h"

namespace lockstep {

/// Signals that are read instead of handled. Made before other threads are, which then leave them alone too.
class Signals {
 public:
  explicit Signals(std::initializer_list<int> numbers);

  /// For poll(): readable while a signal waits.
  int descriptor() const { return descriptor_.get(); }
  /// The number of the next signal.
  std::optional<int> next();

 private:
  Descriptor descriptor_;
};

/// What a user, a batch system or a node asks of lockrun while it runs. Made before other threads are.
class StopRequest {
 public:
  StopRequest();

  /// For poll(): readable while a signal waits, which hear() then takes.
  int descriptor() const { return signals_.descriptor(); }
  void hear();
  /// As SIGTERM, SIGUSR1, SIGHUP and the first SIGINT do, however often: the ranks are to write a snapshot
  /// and leave. `where` names the node on which it was asked for, if that is another.
  void ask(const std::string& where = "");

  bool is_asked() const { return asked_.has_value(); }
  double seconds_since_asked() const { return asked_ ? seconds_since(*asked_) : 0.0; }
  /// The second SIGINT: everything ends now, with its code (130).
  bool is_cancelled() const { return interruptions_ > 1; }

 private:
  Signals signals_;
  std::optional<Clock::time_point> asked_;
  int interruptions_ = 0;
};

}  // namespace lockstep
