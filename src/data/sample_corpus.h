// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <numbers>
#include <string>

namespace lockstep {

/// The built-in corpus (data.dataset = sample): lines like "- Mia met old fox; old fox: Mia". Name, verb,
/// adjective and noun are each drawn from 16 by Philox on the line's number; all else follows from them, also
/// the echo 9 and 26 characters later. So a line of 32 characters holds 16 bits.
class SampleCorpus {
 public:
  static constexpr int64_t line_characters = 32;
  static constexpr int64_t default_lines = 32000;

  /// The same text every time.
  static std::string text(int64_t lines = default_lines);

  /// Nats per character of the process. It is also the least mean loss possible in windows that begin with a
  /// line and are a multiple of 32 characters long, since "-" tells where a line begins.
  static constexpr double entropy_per_character = std::numbers::ln2 / 2;
  /// Nats per character of the best model that sees only one previous character, as a test counts them.
  static constexpr double best_bigram_loss = 1.7844;
};

}  // namespace lockstep
