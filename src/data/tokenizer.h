// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// One token a code point; ids count the characters in ascending order of code points.
class CharTokenizer {
 public:
  /// Knows the characters of this UTF-8 text. The vocabulary() of a tokenizer is such a text and makes an
  /// equal one.
  explicit CharTokenizer(std::string_view text);

  int64_t vocabulary_size() const { return static_cast<int64_t>(characters_.size()); }
  /// All characters in order of their ids, as UTF-8.
  std::string vocabulary() const;
  /// Throws UserError that names a character outside the vocabulary. `source` says in errors where the text
  /// is from.
  std::vector<int32_t> encode(std::string_view text, std::string_view source = "the text") const;
  /// Throws Error for an id outside the vocabulary.
  std::string decode(std::span<const int32_t> ids) const;

  bool operator==(const CharTokenizer&) const = default;

 private:
  std::u32string characters_;  // ascending
};

}  // namespace lockstep
