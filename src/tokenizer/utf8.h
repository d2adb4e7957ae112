// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Returns the code points of UTF-8 text. Throws UserError with `source` (a file's name) and the byte offset
/// if the text is not valid UTF-8 (RFC 3629) or has a NUL.
std::u32string decode_utf8(std::string_view bytes, std::string_view source);

/// Throws UserError with `source` and the byte offset if the bytes are not valid UTF-8. Accepts NUL.
void check_utf8(std::string_view bytes, std::string_view source);

/// Returns the first position at or after `near` where a character begins, or the end of the text.
size_t next_character(std::string_view text, size_t near);

std::string encode_utf8(char32_t code_point);
std::string encode_utf8(std::u32string_view text);

}  // namespace lockstep
