// SPDX-License-Identifier: Apache-2.0
#include "lockstep/unicode/normalization.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "lockstep/json/utf8.h"

namespace lockstep {
namespace {

// Hangul syllables are arithmetic: of a leading consonant, a vowel and perhaps a trailing consonant.
constexpr char32_t first_syllable = 0xAC00, first_leading = 0x1100, first_vowel = 0x1161,
                   before_trailing = 0x11A7;
constexpr char32_t leadings = 19, vowels = 21, trailings = 28, syllables = leadings * vowels * trailings;

constexpr bool is_in(char32_t character, char32_t first, char32_t count) {
  return character >= first && character - first < count;
}

/// All Latin characters with accents, and those before them. No byte of them is above this.
constexpr unsigned char last_lead_of_latin = 0xCB;

/// The tables of normalization for lookups.
class Tables {
 public:
  static const Tables& get() {
    static const Tables tables;
    return tables;
  }

  uint8_t combining_class(char32_t character) const { return classes_[character]; }
  /// Returns whether nothing before the character can combine with it.
  bool begins_part(char32_t character) const { return (flags_[character] & joins) == 0; }
  bool is_own_normalization(char32_t character) const { return (flags_[character] & changes) == 0; }

  /// Appends the full decomposition of a character.
  void decompose(char32_t character, std::u32string& parts) const {
    if (is_in(character, first_syllable, syllables)) {
      const char32_t at = character - first_syllable;
      const auto add = [&](uint32_t part) { parts.push_back(static_cast<char32_t>(part)); };
      add(first_leading + at / (vowels * trailings));
      add(first_vowel + at / trailings % vowels);
      if (at % trailings != 0) add(before_trailing + at % trailings);
      return;
    }
    const auto found = decompositions_.find(character);
    if (found == decompositions_.end()) {
      parts += character;
      return;
    }
    decompose(found->second.first, parts);
    if (found->second.second != 0) parts += found->second.second;
  }

  /// Returns the character that two compose, or 0.
  char32_t compose(char32_t one, char32_t two) const {
    if (is_in(one, first_leading, leadings) && is_in(two, first_vowel, vowels))
      return first_syllable + ((one - first_leading) * vowels + two - first_vowel) * trailings;
    const bool is_open = is_in(one, first_syllable, syllables) && (one - first_syllable) % trailings == 0;
    if (is_open && is_in(two, before_trailing + 1, trailings - 1)) return one + two - before_trailing;
    const auto found = compositions_.find({one, two});
    return found == compositions_.end() ? 0 : found->second;
  }

 private:
  using Pair = std::pair<char32_t, char32_t>;
  static constexpr uint8_t joins = 1, changes = 2;

  Tables() : classes_(0x110000), flags_(0x110000) {
    char32_t at = 0;
    for (size_t i = 0; i < combining_characters.size(); i += 3) {
      at += combining_characters[i];
      for (uint32_t k = 0; k < combining_characters[i + 1]; ++k, ++at) {
        classes_[at] = static_cast<uint8_t>(combining_characters[i + 2]);
        flags_[at] |= joins;
      }
    }
    add(composing_characters, 3, true);
    add(decomposing_characters, 3, false);
    add(replaced_characters, 2, false);
    for (const auto& [pair, made] : compositions_) flags_[pair.second] |= joins;
    for (char32_t vowel = 0; vowel < vowels; ++vowel) flags_[first_vowel + vowel] |= joins;
    for (char32_t last = 1; last < trailings; ++last) flags_[before_trailing + last] |= joins;
    for (const auto& [character, parts] : decompositions_) {
      std::u32string all;
      decompose(character, all);
      if (!begins_part(all.front())) flags_[character] |= joins;
    }
  }
  template <size_t count>
  void add(const std::array<uint32_t, count>& table, size_t each, bool composes) {
    char32_t character = 0;
    for (size_t i = 0; i < count; i += each) {
      character += table[i];
      const Pair parts(table[i + 1], each == 3 ? table[i + 2] : 0);
      decompositions_.emplace(character, parts);
      if (composes) compositions_.emplace(parts, character);
      if (!composes) flags_[character] |= changes;
    }
  }

  std::vector<uint8_t> classes_, flags_;  // [character]
  std::map<char32_t, Pair> decompositions_;
  std::map<Pair, char32_t> compositions_;
};

/// Normalizes characters of which only the first begins a part.
std::u32string normalized_part(const std::u32string& characters, const Tables& tables) {
  std::u32string parts;
  for (const char32_t character : characters) tables.decompose(character, parts);
  const auto class_of = [&](char32_t character) { return tables.combining_class(character); };
  for (auto begin = parts.begin(); begin != parts.end();) {
    const auto end = std::find_if(begin, parts.end(), [&](char32_t one) { return class_of(one) == 0; });
    std::stable_sort(begin, end, [&](char32_t one, char32_t two) { return class_of(one) < class_of(two); });
    begin = end == parts.end() ? end : end + 1;
  }
  std::u32string made;
  size_t base = std::u32string::npos;
  uint8_t last = 0;  // class of the last character behind the base
  for (const char32_t part : parts) {
    const uint8_t own = class_of(part);
    const bool is_reached = base != std::u32string::npos && (last == 0 || last < own);
    const char32_t both = is_reached ? tables.compose(made[base], part) : 0;
    if (both != 0) {
      made[base] = both;
      continue;
    }
    if (own == 0) base = made.size();
    last = own;
    made += part;
  }
  return made;
}

std::u32string characters_of(std::string_view text) {
  std::u32string characters;
  for (size_t at = 0; at < text.size();) {
    const Utf8Character next = first_character(text.substr(at));
    characters += next.code_point;
    at += next.bytes;
  }
  return characters;
}

}  // namespace

std::string normalized(std::string_view text) {
  const auto is_latin = [](char byte) { return static_cast<unsigned char>(byte) <= last_lead_of_latin; };
  if (std::ranges::all_of(text, is_latin)) return std::string(text);
  const Tables& tables = Tables::get();
  std::string made;
  size_t copied = 0, begin = 0;  // of the text, and of the part
  bool changes = false;          // the part may be another one
  const auto end_part = [&](size_t end) {
    if (changes) {
      made.append(text, copied, begin - copied);
      made += encode_utf8(normalized_part(characters_of(text.substr(begin, end - begin)), tables));
      copied = end;
    }
    begin = end;
    changes = false;
  };
  for (size_t at = 0; at < text.size();) {
    const Utf8Character next = first_character(text.substr(at));
    const bool begins = !next.is_valid() || tables.begins_part(next.code_point);
    if (begins) end_part(at);
    changes = changes || !begins || !tables.is_own_normalization(next.code_point);
    at += next.bytes;
    if (!next.is_valid()) end_part(at);
  }
  end_part(text.size());
  return made.append(text, copied);
}

size_t normalization_cut(std::string_view text, size_t near) {
  const Tables& tables = Tables::get();
  for (size_t at = std::min(near, text.size()); at > 0; --at) {
    if (at == text.size()) continue;  // what follows the text may join its last character
    const Utf8Character next = first_character(text.substr(at));
    if (next.is_valid() && tables.begins_part(next.code_point)) return at;
  }
  return 0;
}

bool is_own_normalization(std::string_view character) {
  const Utf8Character first = first_character(character);
  return first.is_valid() && Tables::get().is_own_normalization(first.code_point);
}

}  // namespace lockstep
