// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>

#include "core/clock.h"
#include "core/error.h"

namespace lockstep {

/// A failure that another try may avoid: a broken connection, a busy server.
class TransientError : public Error {
 public:
  using Error::Error;
};

/// A clock that tests replace.
struct RetryClock {
  std::function<Clock::time_point()> now;
  std::function<void(double seconds)> sleep;
};

/// The number of attempts and the delays between them. Delays double and are the same in every run.
struct RetryPolicy {
  int attempts = 8;
  double first_delay_seconds = 0.1;
  double longest_delay_seconds = 10.0;
  double outage_seconds = 0.0;        ///< more attempts follow until an outage has lasted this long
  const RetryClock* clock = nullptr;  ///< null: the real one

  /// Returns the delay after this number of failures (from 1 on).
  double delay_seconds(int failures) const {
    return std::min(std::ldexp(first_delay_seconds, failures - 1), longest_delay_seconds);
  }
};

/// The failures of one call so far.
class Outage {
 public:
  explicit Outage(const RetryPolicy& policy);

  /// Waits until the next attempt. Logs that it waits after ten seconds and then each minute. After the last
  /// attempt it throws Error instead, with the number of attempts. Throws StoppedBeforeStart if a start is
  /// asked to stop.
  void wait(const TransientError& problem);

 private:
  const RetryPolicy& policy_;
  const RetryClock& clock_;
  Clock::time_point began_;
  int failures_ = 0;
  double logged_at_seconds_ = -1.0;  ///< since the first failure; -1: not yet
};

/// Repeats a call while it throws TransientError, as the policy says.
template <class Call>
auto with_retries(const RetryPolicy& policy, Call call) {
  for (std::optional<Outage> outage;;) {
    try {
      return call();
    } catch (const TransientError& problem) {
      if (!outage) outage.emplace(policy);
      outage->wait(problem);
    }
  }
}

}  // namespace lockstep
