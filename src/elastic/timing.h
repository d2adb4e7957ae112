// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace lockstep {

/// How often both ends of a node's connection say that they are alive, and when they are taken for dead.
constexpr double beat_seconds = 1.0;
constexpr double silence_seconds = 6.0;

inline std::chrono::steady_clock::duration duration(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds));
}

inline std::chrono::steady_clock::time_point after(double seconds) {
  return std::chrono::steady_clock::now() + duration(seconds);
}

}  // namespace lockstep
