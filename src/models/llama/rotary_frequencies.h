// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

/// A change of rotary frequencies for contexts longer than those of the first training.
enum class RopeScaling {
  none,
  linear,  ///< all are divided by the factor (Chen et al. 2023)
  llama3,  ///< low ones are divided, high ones kept, and those between are mixed (Llama 3.1)
};

/// The frequencies of rotary positions. --help gives the meanings.
struct RopeOptions {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_positions = 8192;

  bool operator==(const RopeOptions&) const = default;
};

/// Returns the size / 2 frequencies of a head, in radians per position: theta^(-2 i / size), scaled. Powers
/// are rounded to fp32 where transformers rounds them. The scaling of Llama 3.1 is rounded once.
std::vector<float> rotary_frequencies(int64_t size, const RopeOptions& options);

}  // namespace lockstep
