// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/char_tokenizer.h"

#include <gtest/gtest.h>

#include "core/error.h"

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
  EXPECT_EQ(CharTokenizer(tokenizer.vocabulary()), tokenizer);
  EXPECT_NE(CharTokenizer("the quick"), tokenizer);
}

TEST(CharTokenizer, NamesACharacterItDoesNotKnow) {
  const CharTokenizer tokenizer("abc");
  try {
    tokenizer.encode("ab\u00e9", "the prompt");
    FAIL() << "the character was accepted";
  } catch (const UserError& failure) {
    EXPECT_STREQ(
        failure.what(),
        "the prompt holds the character '\u00e9' (U+00E9), which is not among the 3 of the vocabulary");
  }
  EXPECT_THROW(tokenizer.encode("\n"), UserError);
}

TEST(CharTokenizer, RefusesIdsOutsideTheVocabulary) {
  const CharTokenizer tokenizer("abc");
  EXPECT_THROW(tokenizer.decode(Ids{3}), Error);
  EXPECT_THROW(tokenizer.decode(Ids{-1}), Error);
}

}  // namespace
}  // namespace lockstep
