// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/stream.h"

namespace lockstep {

/// What repeated samples of a duration say.
struct Timing {
  double seconds = 0;         ///< the median
  double spread_percent = 0;  ///< distance of the quartiles, in percent of the median
};

/// Throws Error if there is no sample.
Timing timing_of(std::vector<double> samples);

/// Times one call of each body after a warm-up: at least 7 samples of about 1 ms or more, `seconds` in all
/// for each. The bodies alternate sample by sample, so that all meet the same machine.
std::vector<Timing> measure(const std::vector<std::function<void()>>& bodies, double seconds);

/// FMA ceiling of a stream's threads in operations per second, all measured at once.
double peak_flops(const CpuStream& stream);

/// A copy that reads bytes / 2 and writes as many, shared out over the stream's threads: the bandwidth
/// ceiling of whatever moves `bytes` in all.
std::function<void()> make_copy(int64_t bytes, const CpuStream& stream);

/// A pass that reads so many bytes, up to 511 less, shared out over the stream's threads, which read several
/// places side by side: the fastest loop that was found, so the ceiling of what only reads.
std::function<void()> make_read(int64_t bytes, const CpuStream& stream);

}  // namespace lockstep
