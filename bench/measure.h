// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/core/stream.h"

namespace lockstep {

/// Statistics of repeated samples of a duration.
struct Timing {
  double seconds = 0;         ///< the median
  double spread_percent = 0;  ///< interquartile range in percent of the median
};

/// Returns the statistics of the samples. Throws Error if there are none.
Timing timing_of(std::vector<double> samples);

/// Times one call of each body after a warm-up. Each body has at least 7 samples of about 1 ms or more, and
/// `seconds` in total. The bodies alternate sample by sample, so that all meet the same machine load.
std::vector<Timing> measure(const std::vector<std::function<void()>>& bodies, double seconds);

/// Measures the FMA ceiling of a stream's threads, all at the same time. Returns operations per second.
double peak_flops(const CpuStream& stream);

/// Makes a copy that reads bytes / 2 and writes bytes / 2 on the stream's threads. It is the bandwidth
/// ceiling of a kernel that moves `bytes` in total.
std::function<void()> make_copy(int64_t bytes, const CpuStream& stream);

/// Makes a loop that reads `bytes` (up to 511 less) on the stream's threads. Each thread reads eight places
/// in turn. It is the fastest loop found, so it is the ceiling of a kernel that only reads.
std::function<void()> make_read(int64_t bytes, const CpuStream& stream);

}  // namespace lockstep
