// SPDX-License-Identifier: Apache-2.0
#include "lockstep/unicode/character_classes.h"

#include <algorithm>

#include "lockstep/core/error.h"

namespace lockstep {

const CharacterClasses& CharacterClasses::table() {
  static const CharacterClasses classes({});
  return classes;
}

const CharacterClasses& CharacterClasses::with_numbers_of_unicode_17() {
  static const CharacterClasses classes({{0x11DE0, 0x11DE9}, {0x16FF4, 0x16FF6}});
  return classes;
}

CharacterClasses::CharacterClasses(const Ranges& more_numbers) {
  std::vector<CharacterClass> all;
  all.reserve(0x110000);
  for (const uint32_t run : class_runs)
    for (uint32_t i = 0; i < run / 8; ++i) {
      const CharacterClass in_turn = i % 2 == 0 ? CharacterClass::upper : CharacterClass::lower;
      all.push_back(run % 8 == 7 ? in_turn : static_cast<CharacterClass>(run % 8));
    }
  expect(all.size() == 0x110000, "the table of characters has ", all.size());
  for (const auto& [first, last] : more_numbers)
    for (size_t character = first; character <= last; ++character) all[character] = CharacterClass::number;
  for (size_t page = 0; page < page_of_.size(); ++page) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(page * 256);
    size_t known = 0;
    while (known * 256 < pages_.size() &&
           !std::equal(begin, begin + 256, pages_.begin() + static_cast<std::ptrdiff_t>(known * 256)))
      ++known;
    expect(known < 256, "the table of characters has too many pages");
    if (known * 256 == pages_.size()) pages_.insert(pages_.end(), begin, begin + 256);
    page_of_[page] = static_cast<uint8_t>(known);
  }
}

}  // namespace lockstep
