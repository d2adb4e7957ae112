// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {

/// The character classes in the patterns of tokenizers. After `other` they are, in order: \s, \p{N}, \p{Ll},
/// \p{Lu} or \p{Lt}, \p{Lm} or \p{Lo}, \p{M}.
enum class CharacterClass : uint8_t { other, white_space, number, lower, upper, caseless, mark };

inline bool is_letter(CharacterClass kind) {
  return kind == CharacterClass::lower || kind == CharacterClass::upper || kind == CharacterClass::caseless;
}

/// Runs of characters, starting at U+0000. Each entry is length * 8 + class. Class 7 alternates between upper
/// and lower, starting with upper.
inline constexpr size_t class_run_count = 2203;
extern const std::array<uint32_t, class_run_count> class_runs;

/// The class and length of one character of a valid UTF-8 text.
struct ClassedCharacter {
  CharacterClass kind;
  uint32_t bytes;
};

/// The classes of all characters. A lookup has two steps: the page of 256 characters, then the index in it.
class CharacterClasses {
 public:
  static const CharacterClasses& table();
  /// Returns the table with the numbers of Unicode 17. The rule Digits of `tokenizers` 0.23 isolates them,
  /// and no pattern knows them.
  static const CharacterClasses& with_numbers_of_unicode_17();

  CharacterClass of(char32_t character) const {
    return pages_[size_t{page_of_[character >> 8]} << 8 | (character & 255)];
  }

  /// Returns the character at `place`, which must be the first byte of a character.
  ClassedCharacter at(const char* place) const {
    const auto byte = [place](int i) { return static_cast<unsigned char>(place[i]); };
    const char32_t lead = byte(0);
    if (lead < 0x80) return {pages_[lead], 1};
    const char32_t second = byte(1) & 0x3Fu;
    if (lead < 0xE0) return {of((lead & 0x1Fu) << 6 | second), 2};
    const char32_t third = byte(2) & 0x3Fu;
    if (lead < 0xF0) return {of((lead & 0x0Fu) << 12 | second << 6 | third), 3};
    return {of((lead & 0x07u) << 18 | second << 12 | third << 6 | (byte(3) & 0x3Fu)), 4};
  }

 private:
  /// Characters [first, last] of each range are numbers.
  using Ranges = std::vector<std::pair<size_t, size_t>>;
  explicit CharacterClasses(const Ranges& more_numbers);

  std::array<uint8_t, 0x1100> page_of_{};
  std::vector<CharacterClass> pages_;  // page 0 first
};

}  // namespace lockstep
