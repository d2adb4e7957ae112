// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/byte_alphabet.h"

#include <array>

#include "tokenizer/utf8.h"

namespace lockstep {
namespace {

constexpr char32_t letters = 0x144;  // one past the last

struct Alphabet {
  std::array<std::string, 256> spelling;
  std::array<int, letters> byte;
};

bool shows(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

const Alphabet& alphabet() {
  static const Alphabet made = [] {
    Alphabet alphabet;
    alphabet.byte.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const char32_t letter = shows(byte) ? static_cast<char32_t>(byte) : next++;
      alphabet.spelling[static_cast<size_t>(byte)] = encode_utf8(letter);
      alphabet.byte[letter] = byte;
    }
    return alphabet;
  }();
  return made;
}

}  // namespace

std::string spell_bytes(std::string_view bytes) {
  std::string spelling;
  for (const char byte : bytes) spelling += alphabet().spelling[static_cast<unsigned char>(byte)];
  return spelling;
}

std::optional<std::string> unspell_bytes(std::string_view spelling) {
  std::string bytes;
  while (!spelling.empty()) {
    const Utf8Character next = first_character(spelling);
    const char32_t letter = next.code_point;  // U+0000 of an invalid character spells no byte
    if (letter >= letters || alphabet().byte[letter] < 0) return {};
    bytes += static_cast<char>(alphabet().byte[letter]);
    spelling.remove_prefix(next.bytes);
  }
  return bytes;
}

}  // namespace lockstep
