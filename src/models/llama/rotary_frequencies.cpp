// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/llama/rotary_frequencies.h"

#include "lockstep/core/error.h"
#include "lockstep/kernels/elementary.h"

namespace lockstep {
namespace {

/// Returns a frequency of Llama 3.1. A wave that is longer than original_positions / low_freq_factor is
/// low, one that is shorter than original_positions / high_freq_factor is high.
double scaled_like_llama3(double frequency, const RopeOptions& o) {
  constexpr double turn = 6.28318530717958647693;
  const double waves = static_cast<double>(o.original_positions) * frequency / turn;
  if (waves < o.low_freq_factor) return frequency / o.factor;
  if (waves > o.high_freq_factor) return frequency;
  const double smooth = (waves - o.low_freq_factor) / (o.high_freq_factor - o.low_freq_factor);
  return (1.0 - smooth) * frequency / o.factor + smooth * frequency;
}

}  // namespace

std::vector<float> rotary_frequencies(int64_t size, const RopeOptions& options) {
  expect(size > 0 && size % 2 == 0, "rotary positions need heads of an even size, not ", size);
  const double log_theta = math::log(options.theta);
  std::vector<float> frequencies;
  for (int64_t i = 0; i < size; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(size);
    const float wave = static_cast<float>(math::exp(static_cast<double>(exponent) * log_theta));
    const float frequency = 1.0f / wave;
    switch (options.scaling) {
      case RopeScaling::none:
        frequencies.push_back(frequency);
        break;
      case RopeScaling::linear:
        frequencies.push_back(frequency / static_cast<float>(options.factor));
        break;
      case RopeScaling::llama3:
        frequencies.push_back(static_cast<float>(scaled_like_llama3(frequency, options)));
        break;
    }
  }
  return frequencies;
}

}  // namespace lockstep
