// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "core/error.h"

namespace lockstep {

/// It failed, and may work when it is tried again: a broken connection, a busy server.
class TransientError : public Error {
 public:
  using Error::Error;
};

/// How often and how patiently something is tried. Delays double; they are the same in every run.
struct RetryPolicy {
  int attempts = 8;
  double first_delay_seconds = 0.1;
  double longest_delay_seconds = 10.0;

  /// The wait after so many failures (from 1 on).
  double delay_seconds(int failures) const {
    return std::min(std::ldexp(first_delay_seconds, failures - 1), longest_delay_seconds);
  }
};

/// Calls until no TransientError comes. The last one is thrown as an Error that counts the attempts.
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
