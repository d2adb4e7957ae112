// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tokenizer/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

bool has_eight_ascii(std::string_view bytes, size_t offset) {
  if (offset + 8 > bytes.size()) return false;
  uint64_t word = 0;
  std::memcpy(&word, bytes.data() + offset, 8);
  return (word & 0x8080808080808080) == 0;
}

/// Calls visit(code_point) for each character. Errors count bytes from `first`.
template <class Visit>
void visit_characters(std::string_view bytes, std::string_view source, int64_t first, Visit visit) {
  for (size_t offset = 0; offset < bytes.size();) {
    const Utf8Character next = first_character(bytes.substr(offset));
    require(next.code_point != 0, source, " is not text: byte ", first + static_cast<int64_t>(offset),
            bytes[offset] == 0 ? " is a NUL" : " does not begin a UTF-8 character",
            "; a corpus is a UTF-8 text file (iconv converts other encodings)");
    visit(next.code_point);
    offset += next.bytes;
  }
}

}  // namespace

std::u32string decode_utf8(std::string_view bytes, std::string_view source) {
  std::u32string text;
  text.reserve(bytes.size());
  visit_characters(bytes, source, 0, [&](char32_t code_point) { text.push_back(code_point); });
  return text;
}

int64_t Alphabet::add(std::string_view bytes, std::string_view source, int64_t first) {
  int64_t count = 0;
  visit_characters(bytes, source, first, [&](char32_t code_point) {
    has_[code_point] = 1;
    ++count;
  });
  return count;
}

std::string Alphabet::text() const {
  std::string text;
  for (char32_t code_point = 0; code_point < has_.size(); ++code_point)
    if (has_[code_point] != 0) text += encode_utf8(code_point);
  return text;
}

void check_utf8(std::string_view bytes, std::string_view source) {
  for (size_t offset = 0; offset < bytes.size();) {
    if (has_eight_ascii(bytes, offset)) {
      offset += 8;
      continue;
    }
    const Utf8Character next = first_character(bytes.substr(offset));
    require(next.is_valid(), source, " is not text: byte ", offset,
            " does not begin a UTF-8 character; a text is a UTF-8 file (iconv converts other encodings)");
    offset += next.bytes;
  }
}

size_t next_character(std::string_view text, size_t near) {
  while (near < text.size() && (static_cast<unsigned char>(text[near]) & 0xC0) == 0x80) ++near;
  return std::min(near, text.size());
}

}  // namespace lockstep
