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

/// The code points of UTF-8 text. Throws UserError with `source` (a file's name) and the byte offset if it is
/// not valid UTF-8 (RFC 3629) or holds a NUL, which no text does.
std::u32string decode_utf8(std::string_view bytes, std::string_view source);

std::string encode_utf8(char32_t code_point);
std::string encode_utf8(std::u32string_view text);

}  // namespace lockstep
