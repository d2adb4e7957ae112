// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <numbers>

namespace lockstep {

/// Properties of sample_text().
struct SampleCorpus {
  static constexpr size_t line_characters = 32;
  /// Nats per character of the process. It is also the lowest possible mean loss in windows that begin with a
  /// line and are a multiple of 32 characters long. There "-" shows where a line begins.
  static constexpr double entropy_per_character = std::numbers::ln2 / 2;
  /// Nats per character of the best model that sees only the previous character. A test computes it.
  static constexpr double best_bigram_loss = 1.7844;
};

}  // namespace lockstep
