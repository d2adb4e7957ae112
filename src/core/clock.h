// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace lockstep {

/// The clock for durations. Setting the system time does not move it.
using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

inline Clock::duration clock_duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

/// Returns the time point `seconds` from now.
inline Clock::time_point after(double seconds) { return Clock::now() + clock_duration(seconds); }

}  // namespace lockstep
