// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "lockstep/core/clock.h"

namespace lockstep {

/// Polls until the condition is true. Returns false after the deadline, which only a failing test reaches.
inline bool eventually(const std::function<bool()>& condition, double seconds = 180.0) {
  const auto begin = Clock::now();
  while (!condition()) {
    if (seconds_since(begin) >= seconds) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace lockstep
