// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/clock.h"

namespace lockstep {

/// How often both ends of a node's connection say that they are alive, and when they are taken for dead.
constexpr double node_beat_seconds = 1.0;
constexpr double node_silence_seconds = 6.0;

/// The same of a keeper, which reports anyhow while its rank gets on.
constexpr double keeper_beat_seconds = 5.0;
constexpr double keeper_silence_seconds = 30.0;

inline Clock::duration duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

inline Clock::time_point after(double seconds) { return Clock::now() + duration(seconds); }

}  // namespace lockstep
