// SPDX-License-Identifier: Apache-2.0
#include "lockstep/json/utf8.h"

namespace lockstep {

Utf8Character first_character(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return {1, lead, Utf8Character::State::valid};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte excludes overlong forms, surrogates and code points beyond U+10FFFF.
  const unsigned char least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  char32_t code_point = lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {i, 0, Utf8Character::State::cut};
    if (at(i) < (i == 1 ? least : 0x80) || at(i) > (i == 1 ? most : 0xBF)) return {.bytes = i};
    code_point = code_point << 6 | (at(i) & 0x3Fu);
  }
  return {length, code_point, Utf8Character::State::valid};
}

bool is_utf8(std::string_view text) {
  while (!text.empty() && first_character(text).is_valid()) text.remove_prefix(first_character(text).bytes);
  return text.empty();
}

std::string encode_utf8(char32_t code_point) {
  const auto tail = [code_point](int shift) {
    return static_cast<char>(0x80u | (code_point >> shift & 0x3Fu));
  };
  const auto head = [code_point](uint32_t mark, int shift) {
    return static_cast<char>(mark | code_point >> shift);
  };
  if (code_point < 0x80) return {head(0, 0)};
  if (code_point < 0x800) return {head(0xC0, 6), tail(0)};
  if (code_point < 0x10000) return {head(0xE0, 12), tail(6), tail(0)};
  return {head(0xF0, 18), tail(12), tail(6), tail(0)};
}

std::string encode_utf8(std::u32string_view text) {
  std::string bytes;
  for (char32_t code_point : text) bytes += encode_utf8(code_point);
  return bytes;
}

}  // namespace lockstep
