// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tokenizer/char_tokenizer.h"

#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "lockstep/tokenizer/load_tokenizer.h"
#include "lockstep/tokenizer/utf8.h"
#include "lockstep/tokenizer/write_tokenizer_json.h"
#include "support/user_error.h"

namespace lockstep {
namespace {

using Ids = std::vector<int32_t>;

TEST(CharTokenizer, NumbersCharactersInOrderOfCodePoints) {
  const CharTokenizer tokenizer("h\u00e9llo \u20ac\n");
  EXPECT_EQ(tokenizer.vocabulary(), "\n hlo\u00e9\u20ac");
  EXPECT_EQ(tokenizer.vocabulary_size(), 7);
}

TEST(CharTokenizer, EncodesAndDecodes) {
  const CharTokenizer tokenizer("hello w\u00f6rld");
  const Ids ids = tokenizer.encode("h\u00f6rd");
  EXPECT_EQ(ids, (Ids{3, 8, 6, 1}));
  EXPECT_EQ(tokenizer.decode(ids), "h\u00f6rd");
  EXPECT_EQ(tokenizer.decode({}), "");
}

TEST(CharTokenizer, ItsVocabularyMakesAnEqualOne) {
  const CharTokenizer tokenizer("the quick brown f\u00f6x \U0001F98A\n");
  EXPECT_EQ(CharTokenizer(tokenizer.vocabulary()).vocabulary(), tokenizer.vocabulary());
  EXPECT_NE(CharTokenizer("the quick").vocabulary(), tokenizer.vocabulary());
}

TEST(CharTokenizer, NamesACharacterItDoesNotKnow) {
  const CharTokenizer tokenizer("abc");
  try {
    tokenizer.encode("ab\u00e9", "the prompt");
    FAIL() << "the character was accepted";
  } catch (const UserError& failure) {
    EXPECT_STREQ(failure.what(),
                 "the prompt has the character '\u00e9' (U+00E9), which is not among the 3 characters of the "
                 "vocabulary");
  }
  EXPECT_THROW(tokenizer.encode("\n"), UserError);
}

TEST(CharTokenizer, RefusesIdsOutsideTheVocabulary) {
  const CharTokenizer tokenizer("abc");
  EXPECT_THROW(tokenizer.decode(Ids{3}), Error);
  EXPECT_THROW(tokenizer.decode(Ids{-1}), Error);
}

TEST(CharTokenizer, IsReadBackFromItsTokenizerJson) {
  const CharTokenizer tokenizer("\t\n\r \"\\<>aZ\x01\x7F\u00e9\u2028\U0001F98A");
  const auto again = tokenizer_from_json(tokenizer.to_json(), "tokenizer.json");
  EXPECT_EQ(dynamic_cast<const CharTokenizer&>(*again).vocabulary(), tokenizer.vocabulary());
  EXPECT_EQ(again->to_json(), tokenizer.to_json());
  EXPECT_EQ(tokenizer_config_json(tokenizer, 64),
            "{\n  \"clean_up_tokenization_spaces\": false,\n  \"model_max_length\": 64,\n"
            "  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n");
}

// Searching all earlier characters for each one would take ten minutes.
TEST(CharTokenizer, ALargeVocabularyIsWrittenAndRead) {
  Alphabet alphabet;
  for (char32_t code = 0x20000; code < 0x60000; ++code) alphabet.add(encode_utf8(code), "a text");
  const CharTokenizer tokenizer(alphabet.text());
  EXPECT_EQ(tokenizer.vocabulary_size(), 0x40000);
  const auto again = tokenizer_from_json(tokenizer.to_json(), "tokenizer.json");
  EXPECT_EQ(dynamic_cast<const CharTokenizer&>(*again).vocabulary(), tokenizer.vocabulary());
}

TEST(CharTokenizer, RefusesWordLevelOfOtherKinds) {
  const std::string good = CharTokenizer("ab").to_json();
  const auto message_for = [&](const std::string& from, const std::string& to) {
    std::string json = good;
    json.replace(json.find(from), from.size(), to);
    return user_error([&] { tokenizer_from_json(json, "t.json"); });
  };
  expect_contains(message_for("\"b\": 1", "\"bc\": 1"), {"t.json: model.vocab", "single characters"});
  expect_contains(message_for("\"b\": 1", "\"b\": 2"), {"t.json: model.vocab"});
  expect_contains(message_for("\"b\": 1", "\"b\": 0"), {"the id 0 to both \"a\" and \"b\""});
  expect_contains(message_for("\"b\": 1", "\"a\": 1"), {"\"a\" appears twice"});
  expect_contains(message_for("\"b\": 1", "\"b\": -1"), {"gives \"b\" the id -1"});
  expect_contains(message_for("Isolated", "Removed"), {"t.json: pre_tokenizer"});
  expect_contains(message_for("WordLevel", "Unigram"), {"t.json: model.type is \"Unigram\""});
  expect_contains(message_for("version", "ver\nsion"),
                  {"t.json is not valid JSON: a control character at byte"});
}

TEST(CharTokenizer, MayBeCutBetweenCharacters) {
  const CharTokenizer tokenizer("a\u20acb");
  EXPECT_EQ(tokenizer.safe_cut("a\u20acb", 1), 1u);
  EXPECT_EQ(tokenizer.safe_cut("a\u20acb", 2), 4u);
  EXPECT_EQ(tokenizer.safe_cut("a\u20acb", 9), 5u);
}

}  // namespace
}  // namespace lockstep
