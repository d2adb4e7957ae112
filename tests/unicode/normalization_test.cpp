// SPDX-License-Identifier: Apache-2.0
#include "lockstep/unicode/normalization.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/json/utf8.h"
#include "lockstep/unicode/character_classes.h"
#include "support/crc32.h"
#include "support/temporary_directory.h"

namespace lockstep {
namespace {

const nlohmann::json& golden() {
  static const nlohmann::json expected =
      nlohmann::json::parse(read_text(LOCKSTEP_SOURCE_DIR "/tests/golden/families/expected.json"));
  return expected;
}

/// Calls use(character) with every Unicode scalar value.
template <class Use>
void for_each_character(Use use) {
  for (char32_t character = 0; character < 0x110000; ++character)
    if (character < 0xD800 || character > 0xDFFF) use(character);
}

CharacterClass class_of(char32_t character) { return CharacterClasses::table().of(character); }

char32_t first_normalized(std::string_view text) { return first_character(normalized(text)).code_point; }

TEST(Normalization, GivesEveryCharacterTheFormOfTheReference) {
  const std::vector<std::pair<std::string, std::string>> contexts = {
      {"a", ""}, {"", "\u0301"}, {"\u1100", ""}};
  for (size_t i = 0; i < contexts.size(); ++i) {
    Crc32 checksum;
    for_each_character([&](char32_t character) {
      checksum.add(normalized(contexts[i].first + encode_utf8(character) + contexts[i].second) + "\n");
    });
    EXPECT_EQ(checksum.value(), golden()["normalized"][i].get<uint32_t>()) << "context " << i;
  }
}

// Texts of characters that decompose, compose and move, in any order.
TEST(Normalization, GivesRandomTextsTheFormOfTheReference) {
  const auto all = golden()["characters"].get<std::string>();
  std::vector<std::string> characters;
  for (size_t at = 0; at < all.size(); at += characters.back().size())
    characters.push_back(all.substr(at, first_character(std::string_view(all).substr(at)).bytes));
  uint64_t state = 1;
  Crc32 checksum;
  for (int i = 0; i < 25'000; ++i) {
    std::string text;
    for (int k = 0; k < 8; ++k) {
      state = state * 6364136223846793005 + 1442695040888963407;
      text += characters[(state >> 33) % characters.size()];
    }
    checksum.add(normalized(text) + "\n");
    // A text is the parts at its cuts, wherever it is cut.
    for (size_t near = 0; near < text.size(); ++near) {
      const size_t cut = normalization_cut(text, near);
      ASSERT_LE(cut, near);
      ASSERT_EQ(normalized(text.substr(0, cut)) + normalized(text.substr(cut)), normalized(text)) << text;
    }
  }
  EXPECT_EQ(checksum.value(), golden()["normalized"][3].get<uint32_t>());
}

TEST(Normalization, CopiesWhatIsNotUtf8) {
  EXPECT_EQ(normalized("e\u0301\xFF\u0301\xE2\x82"), "\u00e9\xFF\u0301\xE2\x82");
  EXPECT_EQ(normalization_cut("ab\xFF\u0301x", 3), 1U);
  EXPECT_EQ(normalization_cut("", 3), 0U);
}

// BytePairTokenizer::safe_cut() cuts a text behind a letter or number, before white space or a character of
// no other kind. It relies on these facts.
TEST(Normalization, KeepsTheCharactersAroundASafeCut) {
  const auto ends_word = [](char32_t character) {
    const CharacterClass kind = class_of(character);
    return kind == CharacterClass::white_space || (kind == CharacterClass::other && character != '\'');
  };
  const auto is_word = [](char32_t character) {
    return is_letter(class_of(character)) || class_of(character) == CharacterClass::number;
  };
  for_each_character([&](char32_t character) {
    const std::string text = encode_utf8(character);
    if (ends_word(character)) {
      ASSERT_EQ(normalization_cut("a" + text + "b", 1), 1U) << uint32_t{character};
      ASSERT_TRUE(ends_word(first_normalized(text))) << uint32_t{character};
    }
    if (is_word(character)) {
      // A letter is not moved by the marks around it.
      ASSERT_EQ(normalized("\u0345" + text), "\u0345" + normalized(text)) << uint32_t{character};
    }
  });
  char32_t composed = 0;
  for (size_t i = 0; i < composing_characters.size(); i += 3) {
    composed += composing_characters[i];
    const char32_t first = composing_characters[i + 1], last = composing_characters[i + 2];
    EXPECT_TRUE(ends_word(composed) || !ends_word(first)) << uint32_t{composed};
    EXPECT_TRUE(is_word(composed) || !is_word(last)) << uint32_t{composed};
  }
}

}  // namespace
}  // namespace lockstep
