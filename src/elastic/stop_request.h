// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "core/clock.h"
#include "elastic/signals.h"

namespace lockstep {

/// What a user, a batch system or a node asks of lockrun while it runs. Made before other threads are.
class StopRequest {
 public:
  StopRequest();

  /// For poll(): readable while a signal waits, which hear() then takes.
  int descriptor() const { return signals_.descriptor(); }
  void hear();
  /// As SIGTERM, SIGUSR1 and SIGHUP do: the ranks are to write a snapshot and leave. `where` names the node
  /// on which it was asked for, if that is another.
  void ask(const std::string& where = "");

  bool is_asked() const { return asked_.has_value(); }
  double seconds_since_asked() const;
  /// SIGINT, or SIGTERM for the second time: everything ends now, with the signal's code (130, 143).
  bool is_cancelled() const { return cancel_signal_ != 0; }
  int cancel_code() const { return 128 + cancel_signal_; }

 private:
  Signals signals_;
  std::optional<Clock::time_point> asked_;
  bool was_terminated_ = false;
  int cancel_signal_ = 0;
};

}  // namespace lockstep
