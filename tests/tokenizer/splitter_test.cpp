// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tokenizer/splitter.h"

#include <gtest/gtest.h>
#include <vector>

namespace lockstep {
namespace {

std::vector<std::string> pieces_of(SplitRule rule, const std::string& text) {
  const Splitter splitter(rule);
  std::vector<std::string> pieces;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const char* const after = splitter.end_of_piece(at, end);
    pieces.emplace_back(at, after);
    at = after;
  }
  return pieces;
}

using Pieces = std::vector<std::string>;

TEST(Splitter, SplitsAsGpt2) {
  EXPECT_EQ(pieces_of(SplitRule::gpt2, "It's 12345, WE'RE  ok\n\n x"),
            (Pieces{"It", "'s", " 12345", ",", " WE", "'", "RE", " ", " ok", "\n\n", " x"}));
  EXPECT_EQ(pieces_of(SplitRule::gpt2, "a\t\tb \n "), (Pieces{"a", "\t", "\t", "b", " \n "}));
}

TEST(Splitter, SplitsAsLlama3) {
  EXPECT_EQ(pieces_of(SplitRule::llama3, "It's 12345, WE'RE  ok\n\n x"),
            (Pieces{"It", "'s", " ", "123", "45", ",", " WE", "'RE", " ", " ok", "\n\n", " x"}));
  EXPECT_EQ(pieces_of(SplitRule::llama3, "(a) !!\n\n b'\u017f \n \n  "),
            (Pieces{"(a", ")", " !!\n\n", " b", "'\u017f", " \n \n", "  "}));
}

TEST(Splitter, DiffersFromLlama3InClOnlyByWhiteSpaceAtTheEnd) {
  EXPECT_EQ(pieces_of(SplitRule::cl100k, "b \n \n  "), (Pieces{"b", " \n \n  "}));
  EXPECT_EQ(pieces_of(SplitRule::cl100k, "b \n \n  c"), (Pieces{"b", " \n \n", " ", " c"}));
}

TEST(Splitter, SplitsWordsByCaseAsO200k) {
  EXPECT_EQ(pieces_of(SplitRule::o200k, "camelCaseHTTPServer's ABC'D //\n"),
            (Pieces{"camel", "Case", "HTTPServer's", " ABC'D", " //\n"}));
  // A mark counts as a letter of any case. It moves to the second part if no lower-case letter follows.
  EXPECT_EQ(pieces_of(SplitRule::o200k, "AB\u0301C"), (Pieces{"AB\u0301", "C"}));
  EXPECT_EQ(pieces_of(SplitRule::o200k, "\u0301ABC"), (Pieces{"\u0301", "ABC"}));
}

TEST(Splitter, KnowsItsOwnPatterns) {
  for (const SplitRule rule :
       {SplitRule::gpt2, SplitRule::cl100k, SplitRule::llama3, SplitRule::qwen2, SplitRule::o200k})
    EXPECT_EQ(split_rule_of(split_pattern(rule)), rule);
  EXPECT_FALSE(split_rule_of("\\w+|\\s+"));
}

TEST(Splitter, CutsWhereNoPieceGoesOn) {
  const Splitter splitter(SplitRule::o200k);
  const std::string text = "ab cd's\u4f60!";
  EXPECT_EQ(splitter.safe_cut(text, 0), 0u);
  EXPECT_EQ(splitter.safe_cut(text, 1), 2u);
  EXPECT_EQ(splitter.safe_cut(text, 2), 2u);
  EXPECT_EQ(splitter.safe_cut(text, 3), 10u);  // not before the apostrophe, and not between letters
  EXPECT_EQ(splitter.safe_cut(text, 99), text.size());
  // Invalid UTF-8 is refused later. At this point it must only do no harm.
  EXPECT_EQ(splitter.safe_cut("a\xF7\xBF", 1), 3u);
  EXPECT_EQ(splitter.safe_cut("a\xF4tel x", 1), 5u);
  for (int pair = 0; pair < 1 << 16; ++pair) {
    // The cut is before or within the pair, or after the letters that follow. These belong to no character of
    // the pair.
    const std::string two{static_cast<char>(pair >> 8), static_cast<char>(pair)};
    const size_t cut = splitter.safe_cut("a" + two + "el x", 1);
    ASSERT_TRUE(cut == 1 || cut == 2 || cut == 5) << pair << " is cut at " << cut;
  }
}

TEST(CharacterClasses, AreThoseOfTheReferences) {
  const CharacterClasses& classes = CharacterClasses::table();
  std::array<int, 7> counts{};
  for (char32_t code = 0; code < 0x110000; ++code) ++counts[static_cast<size_t>(classes.of(code))];
  // The counts of white space, numbers, lower, upper, caseless and marks agree with both references.
  EXPECT_EQ(counts,
            (std::array<int, 7>{0x110000 - 25 - 1911 - 141028 - 2501, 25, 1911, 2258, 1889, 136881, 2501}));
}

}  // namespace
}  // namespace lockstep
