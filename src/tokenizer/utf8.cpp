// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/error.h"

namespace lockstep {
namespace {

/// The form of a UTF-8 sequence, by its first byte. `least` is the lowest code point of this length.
struct Form {
  size_t bytes;
  char32_t first_bits;
  char32_t least;
};

Form form_of(unsigned char lead) {
  if (lead < 0x80) return {1, lead, 1};
  if ((lead & 0xE0) == 0xC0) return {2, lead & 0x1Fu, 0x80};
  if ((lead & 0xF0) == 0xE0) return {3, lead & 0x0Fu, 0x800};
  if ((lead & 0xF8) == 0xF0) return {4, lead & 0x07u, 0x10000};
  return {0, 0, 0};
}

/// Returns the code point at the start of `bytes`, or 0 if it is invalid or NUL.
char32_t first_code_point(std::string_view bytes, const Form& form) {
  if (form.bytes == 0 || form.bytes > bytes.size()) return 0;
  char32_t code_point = form.first_bits;
  for (size_t i = 1; i < form.bytes; ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if ((byte & 0xC0) != 0x80) return 0;
    code_point = code_point << 6 | (byte & 0x3Fu);
  }
  const bool is_surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  return code_point < form.least || code_point > 0x10FFFF || is_surrogate ? 0 : code_point;
}

bool has_eight_ascii(std::string_view bytes, size_t offset) {
  if (offset + 8 > bytes.size()) return false;
  uint64_t word = 0;
  std::memcpy(&word, bytes.data() + offset, 8);
  return (word & 0x8080808080808080) == 0;
}

}  // namespace

std::u32string decode_utf8(std::string_view bytes, std::string_view source) {
  std::u32string text;
  text.reserve(bytes.size());
  for (size_t offset = 0; offset < bytes.size();) {
    const Form form = form_of(static_cast<unsigned char>(bytes[offset]));
    const char32_t code_point = first_code_point(bytes.substr(offset), form);
    require(code_point != 0, source, " is not text: byte ", offset,
            bytes[offset] == 0 ? " is a NUL" : " does not begin a UTF-8 character",
            "; a corpus is a UTF-8 text file (iconv converts other encodings)");
    text.push_back(code_point);
    offset += form.bytes;
  }
  return text;
}

void check_utf8(std::string_view bytes, std::string_view source) {
  for (size_t offset = 0; offset < bytes.size();) {
    if (has_eight_ascii(bytes, offset)) {
      offset += 8;
      continue;
    }
    const auto lead = static_cast<unsigned char>(bytes[offset]);
    const Form form = form_of(lead);
    require(lead == 0 || first_code_point(bytes.substr(offset), form) != 0, source, " is not text: byte ",
            offset,
            " does not begin a UTF-8 character; a text is a UTF-8 file (iconv converts other encodings)");
    offset += form.bytes;
  }
}

size_t next_character(std::string_view text, size_t near) {
  while (near < text.size() && (static_cast<unsigned char>(text[near]) & 0xC0) == 0x80) ++near;
  return std::min(near, text.size());
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
