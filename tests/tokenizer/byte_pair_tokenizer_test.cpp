// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tokenizer/byte_pair_tokenizer.h"

#include <gtest/gtest.h>
#include <set>

#include "lockstep/tokenizer/utf8.h"
#include "lockstep/tokenizer/write_tokenizer_json.h"
#include "lockstep/unicode/normalization.h"
#include "support/crc32.h"
#include "support/user_error.h"
#include "tokenizer/golden_tokenizers.h"

namespace lockstep {
namespace {

using Ids = std::vector<int32_t>;
using namespace std::string_literals;

/// The text before and after a character in the nine contexts of make_tokenizers.py. "=" stands for the
/// character.
const std::vector<std::pair<std::string, std::string>> contexts = {
    {"", ""}, {" ", ""}, {"a", ""}, {"1", ""}, {"'", ""}, {"\n", ""}, {"=", ""}, {"a", "b"}, {"", " "}};

/// Returns a text as a tokenizer decodes it: in NFC if the tokenizer normalizes texts.
std::string form_of(const std::string& name, const std::string& text) {
  return name == "family_qwen3" ? normalized(text) : text;
}

/// Returns the checksum of every n-th character in a context. Also checks that each character decodes to
/// itself, or to its normalization.
uint32_t checksum(const Tokenizer& tokenizer, const std::pair<std::string, std::string>& context, int every,
                  const std::string& name) {
  Crc32 checksum;
  std::string text;
  for (int count = 0; count < 0x110000 - 0x800; count += every) {
    const auto code = static_cast<char32_t>(count < 0xD800 ? count : count + 0x800);
    const std::string character = encode_utf8(code);
    text = (context.first == "=" ? character : context.first) + character + context.second;
    const Ids ids = tokenizer.encode(text);
    for (int32_t id : ids) checksum.add(id);
    checksum.add(-1);
    if (form_of(name, tokenizer.decode(ids)) != form_of(name, text)) return 0;
  }
  return checksum.value();
}

/// A test of all characters takes seconds, and minutes with sanitizers.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
constexpr bool takes_all = false;
#else
constexpr bool takes_all = true;
#endif

class GoldenTokenizers : public testing::TestWithParam<const char*> {};

TEST_P(GoldenTokenizers, GiveEveryCharacterInNineContextsTheIdsOfTheReferences) {
  const auto tokenizer = golden_tokenizer(GetParam());
  const bool all = takes_all && !is_of_family(GetParam()) && golden_expected()["all"].contains(GetParam());
  const nlohmann::json& sums = golden_values(GetParam(), all ? "all" : "some");
  for (size_t i = 0; i < contexts.size(); ++i)
    EXPECT_EQ(checksum(*tokenizer, contexts[i], all ? 1 : 61, GetParam()), sums[i].get<uint32_t>())
        << "context " << i;
}

TEST_P(GoldenTokenizers, GiveTextsTheIdsOfTheReferences) {
  const auto tokenizer = golden_tokenizer(GetParam());
  const auto again = tokenizer_from_json(tokenizer->to_json(), "again");
  const nlohmann::json& texts = golden_texts(GetParam());
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto text = texts[i].get<std::string>();
    const Ids ids = tokenizer->encode(text);
    // Only some of the files have the token <|tool|>. The expected ids account for that.
    EXPECT_EQ(ids, golden_values(GetParam(), "ids")[i].get<Ids>()) << text;
    EXPECT_EQ(again->encode(text), ids) << text;
    EXPECT_EQ(form_of(GetParam(), tokenizer->decode(ids)), form_of(GetParam(), text));
    if (is_of_family(GetParam())) {
      EXPECT_EQ(tokenizer->encode_content(text, "x"), golden_values(GetParam(), "content")[i].get<Ids>())
          << text;
    }
  }
}

// A safe cut of the beginning of a text is one of the whole text, also if the beginning ends within a
// character or an added token.
TEST_P(GoldenTokenizers, GiveTheSameIdsInAnyParts) {
  const auto tokenizer = golden_tokenizer(GetParam());
  std::string text;
  for (int i = 0; i < 6; ++i)
    for (const nlohmann::json& part : golden_texts(GetParam()))
      text += (i % 3 ? " " : "") + part.get<std::string>() + (i % 2 ? "\n" : "x");
  const Ids ids = tokenizer->encode(text);
  EXPECT_EQ(form_of(GetParam(), tokenizer->decode(ids)), form_of(GetParam(), text));
  std::set<size_t> cuts;
  for (size_t near = 0; near <= text.size(); near += 7)
    for (const size_t seen : {near + 1, near + 5, near + 9, near + 15, text.size()}) {
      const std::string_view beginning = std::string_view(text).substr(0, seen);
      const size_t cut = tokenizer->safe_cut(beginning, near);
      ASSERT_GE(cut, near);
      if (cut < beginning.size()) cuts.insert(cut);
    }
  EXPECT_GT(cuts.size(), text.size() / 40);
  for (const size_t cut : cuts) {
    Ids parts = tokenizer->encode(std::string_view(text).substr(0, cut));
    const Ids rest = tokenizer->encode(std::string_view(text).substr(cut));
    parts.insert(parts.end(), rest.begin(), rest.end());
    ASSERT_EQ(parts, ids) << "cut at " << cut;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, GoldenTokenizers,
                         testing::Values("gpt2", "cl100k", "llama3", "qwen2", "o200k", "family_llama3",
                                         "family_qwen3", "family_smollm2"),
                         [](const auto& of) { return std::string(of.param); });

TEST(BytePairTokenizer, PutsSpecialTokensAroundATextWhereAsked) {
  const auto tokenizer = golden_tokenizer("llama3");
  EXPECT_EQ(tokenizer->with_special_tokens(tokenizer->encode("Hello")),
            golden_expected()["with_special"].get<Ids>());
  EXPECT_EQ(tokenizer->end_of_text(), tokenizer->encode("<|endoftext|>").front());
  EXPECT_EQ(tokenizer->beginning(), Ids{*tokenizer->beginning_of_text()});
  expect_contains(tokenizer_config_json(*tokenizer, 8),
                  {R"("eos_token": "<|endoftext|>")", R"("model_max_length": 8)"});
}

// U+0958 is a letter, and its normalization ends with a mark, which a piece of punctuation continues.
TEST(BytePairTokenizer, CutsNoTextBehindALetterThatBecomesAMark) {
  BytePairModel model;
  model.normalizes = true;
  model.rule = SplitRule::qwen2;
  for (int byte = 0; byte < 256; ++byte) model.tokens.emplace_back(1, static_cast<char>(byte));
  model.tokens.emplace_back("\xBC!");
  model.merges = {{0xBC, '!', 0, 256}};
  const BytePairTokenizer tokenizer(model);
  const std::string text = "\u0958! b!";
  EXPECT_EQ(tokenizer.encode(text), (Ids{0xE0, 0xA4, 0x95, 0xE0, 0xA4, 256, ' ', 'b', '!'}));
  EXPECT_EQ(tokenizer.safe_cut(text, 1), text.find("!", 5));
  EXPECT_EQ(tokenizer.safe_cut("\u0915! b!", 1), 3U);
}

TEST(BytePairTokenizer, NamesTheByteThatIsNoText) {
  const auto tokenizer = golden_tokenizer("gpt2");
  expect_contains(user_error([&] { tokenizer->encode("ab cd efgh\xC3(", "a.txt"); }),
                  {"a.txt is not text: byte 10"});
  expect_contains(user_error([&] { tokenizer->encode("ab\xED\xA0\x80", "a.txt"); }), {"byte 2"});
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("\0"s)), "\0"s);
  EXPECT_THROW(tokenizer->decode(Ids{700}), Error);
}

/// Runs both ways to find the next merge, over pieces longer and shorter than the threshold between them.
TEST(BytePairTokenizer, MergesLongPiecesInTheOrderOfShortOnes) {
  const std::vector<Merge> merges{{0, 0, 3, 2}, {0, 1, 1, 3}, {3, 3, 2, 4}, {1, 0, 0, 5}, {2, 2, 4, 6}};
  const MergeTable table(merges);
  MergeTable::Scratch scratch;
  uint32_t state = 1;
  for (int round = 0; round < 200; ++round) {
    Ids symbols;
    for (int i = 0; i < round; ++i)
      symbols.push_back(static_cast<int32_t>((state = state * 1664525 + 1013904223) >> 31));
    Ids expected = symbols;
    for (;;) {  // the definition: the lowest rank first, then the leftmost
      size_t best = expected.size();
      for (size_t i = 0; i + 1 < expected.size(); ++i) {
        const Merge* found = table.find(expected[i], expected[i + 1]);
        if (found &&
            (best == expected.size() || found->rank < table.find(expected[best], expected[best + 1])->rank))
          best = i;
      }
      if (best == expected.size()) break;
      expected[best] = table.find(expected[best], expected[best + 1])->merged;
      expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    symbols.resize(table.merge(symbols.data(), symbols.size(), scratch));
    EXPECT_EQ(symbols, expected) << round;
  }
}

TEST(BytePairTokenizer, TakesALongPieceOfOneLetter) {
  const auto tokenizer = golden_tokenizer("gpt2");
  const std::string text(1 << 20, 'a');
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

}  // namespace
}  // namespace lockstep
