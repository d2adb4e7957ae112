// SPDX-License-Identifier: Apache-2.0
#include "data/encode.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <numeric>

#include "core/error.h"
#include "data/tokens.h"
#include "support/temporary_directory.h"
#include "support/user_error.h"

namespace lockstep {
namespace {

/// A tokenizer whose id of a word is its length, including the blank after it. A cut inside a word would
/// change the ids.
class Words : public Tokenizer {
 public:
  std::string to_json() const override { return ""; }
  int64_t vocabulary_size() const override { return 1000; }
  std::vector<int32_t> encode(std::string_view text, std::string_view source) const override {
    std::vector<int32_t> ids;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find(' ', begin), text.size() - 1) + 1;
      require(text[begin] != '?', source, ": a question at byte ", begin);
      ids.push_back(static_cast<int32_t>(end - begin));
      begin = end;
    }
    return ids;
  }
  std::string decode(std::span<const int32_t>) const override { return ""; }
  size_t safe_cut(std::string_view text, size_t near) const override {
    return std::min(text.find(' ', near), text.size() - 1) + 1;
  }
  std::optional<int32_t> end_of_text() const override { return 999; }
  std::vector<int32_t> beginning() const override { return {}; }
};

/// Returns a text of more than two chunks. For any number of threads, no chunk ends at a blank.
std::string long_text() {
  std::string text;
  for (size_t i = 0; text.size() < (size_t{5} << 19); ++i) text += std::string(1 + i % 97, 'x') + " ";
  return text;
}

TEST(EncodeCorpus, NeitherPiecesNorThreadsShow) {
  const Corpus corpus{.text = long_text(), .source = "a", .description = ""};
  const std::vector<int32_t> whole = Words().encode(corpus.text, "a");
  for (const int threads : {1, 2, 5}) EXPECT_EQ(encode_corpus(Words(), corpus, threads), whole) << threads;
}

TEST(EncodeCorpus, EveryDocumentOfSeveralIsFollowedByEndOfText) {
  const Corpus several{.text = "one two threefour ", .source = "a", .description = "", .ends = {8, 13, 18}};
  EXPECT_EQ(encode_corpus(Words(), several, 2), (std::vector<int32_t>{4, 4, 999, 5, 999, 5, 999}));
  EXPECT_EQ(encode_corpus(Words(), {.text = "one two", .source = "a", .description = ""}, 2),
            (std::vector<int32_t>{4, 3}));
}

TEST(EncodeCorpus, APlaceThatIsNamedCountsFromTheBeginning) {
  Corpus corpus{.text = long_text(), .source = "a.txt", .description = ""};
  const size_t place = corpus.text.size();
  corpus.text += "? ";
  expect_contains(user_error([&] { encode_corpus(Words(), corpus, 2); }), {"a.txt", concat("byte ", place)});
}

TEST(Tokens, Of16And32BitsAreTheSame) {
  std::vector<int32_t> ids(100);
  std::iota(ids.begin(), ids.end(), 65436);
  const auto narrow = std::make_shared<std::vector<uint16_t>>(ids.begin(), ids.end());
  const Tokens wide = ids;
  const std::shared_ptr<const std::byte> memory(narrow, reinterpret_cast<const std::byte*>(narrow->data()));
  const Tokens of_16(memory, 100, 2);
  for (const Tokens& tokens : {wide, of_16, of_16.slice(0, 100)}) {
    EXPECT_EQ(tokens.size(), 100);
    EXPECT_EQ(tokens[99], 65535);
    const Tokens part = tokens.slice(10, 90).slice(5, 25);
    std::vector<int32_t> copied(20);
    part.copy(0, 20, copied.data());
    EXPECT_EQ(copied, std::vector<int32_t>(ids.begin() + 15, ids.begin() + 35));
    EXPECT_THROW(part[20], Error);
    EXPECT_THROW(tokens.slice(50, 101), Error);
  }
}

TEST(FolderCorpus, IsItsTextFilesByName) {
  const TemporaryDirectory directory;
  for (const auto& [name, text] : {std::pair("b.txt", "roses"), std::pair("a.txt", "violets\n"),
                                   std::pair("a.md", "no text"), std::pair("c.txt", "ü")})
    std::ofstream(directory / name, std::ios::binary) << text;
  const Corpus corpus = local_corpus(directory.path());
  EXPECT_EQ(corpus.text, "violets\nrosesü");
  EXPECT_EQ(corpus.ends, (std::vector<size_t>{8, 13, 15}));
  EXPECT_EQ(corpus.description, concat("3 texts, 14 characters from ", directory.path()));
  std::ofstream(directory / "d.txt") << "";
  expect_contains(user_error([&] { local_corpus(directory.path()); }), {directory / "d.txt", "is empty"});
}

}  // namespace
}  // namespace lockstep
