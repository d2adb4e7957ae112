// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

/// The character at the start of some bytes (RFC 3629).
struct Utf8Character {
  enum class State { valid, cut, invalid };  ///< `cut`: the bytes end within it

  size_t bytes = 1;         ///< an invalid sequence ends before the first byte that cannot belong to it
  char32_t code_point = 0;  ///< only if the character is valid
  State state = State::invalid;

  bool is_valid() const { return state == State::valid; }
};
/// Reads a character from at least one byte.
Utf8Character first_character(std::string_view bytes);

/// Returns whether a text is UTF-8 (RFC 3629).
bool is_utf8(std::string_view text);

std::string encode_utf8(char32_t code_point);
std::string encode_utf8(std::u32string_view text);

}  // namespace lockstep
