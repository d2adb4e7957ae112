// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "core/error.h"

namespace lockstep {

/// A failure that another try may avoid: a broken connection, a busy server.
class TransientError : public Error {
 public:
  using Error::Error;
};

/// The number of attempts and the delays between them. Delays double and are the same in every run.
struct RetryPolicy {
  int attempts = 8;
  double first_delay_seconds = 0.1;
  double longest_delay_seconds = 10.0;

  /// Returns the delay after this number of failures (from 1 on).
  double delay_seconds(int failures) const {
    return std::min(std::ldexp(first_delay_seconds, failures - 1), longest_delay_seconds);
  }
};

/// Repeats a call while it throws TransientError. After the last attempt throws an Error that counts them.
template <class Call>
auto with_retries(const RetryPolicy& policy, Call call) {
  for (int failures = 1;; ++failures) {
    try {
      return call();
    } catch (const TransientError& problem) {
      if (failures >= policy.attempts)
        throw Error(concat(problem.what(), " (given up after ", failures, " attempts)"));
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(policy.delay_seconds(failures)));
  }
}

}  // namespace lockstep
