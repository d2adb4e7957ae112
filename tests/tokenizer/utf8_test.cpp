// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tokenizer/utf8.h"

#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "support/user_error.h"

namespace lockstep {
namespace {

using namespace std::string_literals;

std::string message_for(const std::string& bytes) {
  try {
    decode_utf8(bytes, "corpus.txt");
  } catch (const UserError& failure) {
    return failure.what();
  }
  return "accepted";
}

TEST(Utf8, DecodesOneToFourBytes) {
  EXPECT_EQ(decode_utf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x8E\xAD", "text"), U"a\u00e9\u20ac\U0001F3AD");
}

TEST(Utf8, RoundTripsTheBordersOfEveryForm) {
  const std::u32string text = U"\x01\x7F\u0080\u07FF\u0800\uD7FF\uE000\uFFFF\U00010000\U0010FFFF";
  EXPECT_EQ(encode_utf8(text).size(), 1u + 1 + 2 + 2 + 3 + 3 + 3 + 3 + 4 + 4);
  EXPECT_EQ(decode_utf8(encode_utf8(text), "text"), text);
}

TEST(Utf8, RefusesWhatIsNotTextAndSaysWhere) {
  const std::vector<std::string> broken{
      "ab\x80",              // continuation without a start
      "ab\xC3",              // cut off
      "ab\xE2\x82",          // cut off
      "ab\xC3(",             // start without continuation
      "ab\xC0\x80",          // overlong NUL
      "ab\xC1\xBF",          // overlong
      "ab\xE0\x9F\xBF",      // overlong
      "ab\xF0\x8F\xBF\xBF",  // overlong
      "ab\xED\xA0\x80",      // surrogate
      "ab\xF4\x90\x80\x80",  // beyond U+10FFFF
      "ab\xFF",              // never in UTF-8
      "ab\0"s,               // binary
  };
  for (const std::string& bytes : broken) {
    const std::string message = message_for(bytes);
    EXPECT_NE(message.find("corpus.txt is not text: byte 2 "), std::string::npos) << message;
  }
}

TEST(Alphabet, HasEachCharacterOnceInOrder) {
  Alphabet alphabet;
  EXPECT_EQ(alphabet.add("b\u00e9a\U0001F3AD", "text"), 4);
  EXPECT_EQ(alphabet.add("a\n\U0010FFFFb", "text"), 4);
  EXPECT_EQ(alphabet.text(), "\nab\u00e9\U0001F3AD\U0010FFFF");
}

TEST(Alphabet, NamesThePlaceInTheWholeText) {
  Alphabet alphabet;
  expect_contains(user_error([&] { alphabet.add("ab\xFFz", "corpus.txt", int64_t{5} << 32); }),
                  {concat("corpus.txt is not text: byte ", (int64_t{5} << 32) + 2, " does not begin")});
}

}  // namespace
}  // namespace lockstep
