// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/json/utf8.h"

namespace lockstep {

/// Returns the code points of UTF-8 text. Throws UserError with `source` (a file's name) and the byte offset
/// if the text is not valid UTF-8 (RFC 3629) or has a NUL.
std::u32string decode_utf8(std::string_view bytes, std::string_view source);

/// The set of the characters of texts.
class Alphabet {
 public:
  /// Adds the characters of a piece of text and returns their number. Throws as decode_utf8() does. The piece
  /// begins at byte `first` of the text that errors name.
  int64_t add(std::string_view bytes, std::string_view source, int64_t first = 0);
  /// Returns the characters in ascending order, as UTF-8.
  std::string text() const;

 private:
  std::vector<char> has_ = std::vector<char>(0x110000);  ///< [code point]
};

/// Throws UserError with `source` and the byte offset if the bytes are not valid UTF-8. Accepts NUL.
void check_utf8(std::string_view bytes, std::string_view source);

/// Returns a text without the byte order mark that editors on Windows put before it.
inline std::string_view without_byte_order_mark(std::string_view text) {
  return text.substr(text.starts_with("\xEF\xBB\xBF") ? 3 : 0);
}

/// Returns the first position at or after `near` where a character begins, or the end of the text.
size_t next_character(std::string_view text, size_t near);

}  // namespace lockstep
