// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <gtest/gtest.h>
#include <numeric>

#include "lockstep/core/error.h"
#include "lockstep/core/thread_pool.h"
#include "lockstep/data/bytes.h"
#include "lockstep/data/read_corpus.h"
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

/// Returns a text of several parts. For any number of threads, no part ends at a blank.
std::string long_text() {
  std::string text;
  for (size_t i = 0; text.size() < (size_t{5} << 19); ++i) text += std::string(1 + i % 97, 'x') + " ";
  return text;
}

Corpus corpus_of(const std::vector<std::string>& texts, Corpus::Kind kind = Corpus::Kind::text) {
  Corpus corpus{.kind = kind, .title = "", .source = "a", .documents = {}};
  for (const std::string& text : texts)
    corpus.documents.push_back({.name = concat("a", corpus.documents.size()), .path = "", .text = text});
  return corpus;
}

/// Returns the ids of a corpus. Checks its hash.
std::vector<int32_t> ids_of(const Corpus& corpus, int threads, std::vector<int64_t>* marks = nullptr) {
  std::vector<int32_t> ids;
  detail::ThreadPool pool(threads);
  const auto take = [&](std::span<const int32_t> part, std::span<const int64_t> its_marks) {
    ids.insert(ids.end(), part.begin(), part.end());
    if (marks) marks->insert(marks->end(), its_marks.begin(), its_marks.end());
  };
  EXPECT_EQ(encode_corpus(Words(), corpus, pool, take), measure(corpus).hash);
  return ids;
}

TEST(EncodeCorpus, NeitherPartsNorThreadsShow) {
  const std::string text = long_text();
  const std::vector<int32_t> whole = Words().encode(text, "a");
  for (const int threads : {1, 2, 5, 100}) EXPECT_EQ(ids_of(corpus_of({text}), threads), whole) << threads;
}

// A word of several windows cannot be cut.
TEST(EncodeCorpus, AWordLongerThanAWindowStaysWhole) {
  const std::string text = "a " + std::string(size_t{3} << 19, 'x') + " b ";
  EXPECT_EQ(ids_of(corpus_of({text}), 2), (std::vector<int32_t>{2, (3 << 19) + 1, 2}));
}

TEST(EncodeCorpus, PartsComeInOrderAndNeverAllAtOnce) {
  std::string text;
  while (text.size() < size_t{20} << 20) text += "x ";
  size_t parts = 0;
  detail::ThreadPool pool(2);
  encode_corpus(Words(), corpus_of({text}), pool,
                [&](std::span<const int32_t> part, std::span<const int64_t>) {
                  EXPECT_LE(part.size(), size_t{1} << 20);
                  ++parts;
                });
  EXPECT_GE(parts, 20U);
}

TEST(EncodeCorpus, EveryDocumentOfSeveralIsFollowedByEndOfText) {
  const Corpus several = corpus_of({"one two ", "three", "four "}, Corpus::Kind::documents);
  EXPECT_EQ(ids_of(several, 2), (std::vector<int32_t>{4, 4, 999, 5, 999, 5, 999}));
  EXPECT_EQ(ids_of(corpus_of({"one two"}), 2), (std::vector<int32_t>{4, 3}));
  EXPECT_EQ(ids_of(corpus_of({"one"}, Corpus::Kind::documents), 2), (std::vector<int32_t>{3, 999}));
  // A long document among short ones.
  std::vector<int32_t> expected{4, 999};
  for (const int32_t id : Words().encode(long_text(), "")) expected.push_back(id);
  expected.insert(expected.end(), {999, 5, 999});
  EXPECT_EQ(ids_of(corpus_of({"one ", long_text(), "four "}, Corpus::Kind::documents), 2), expected);
}

TEST(EncodeCorpus, TheFirstDocumentThatCannotBeEncodedIsNamed) {
  const Corpus corpus = corpus_of({"one ", "two ? ", "three", "? "}, Corpus::Kind::documents);
  for (const int threads : {1, 3})
    expect_contains(user_error([&] { ids_of(corpus, threads); }), {"a1: a question at byte 4"});
}

TEST(EncodeCorpus, MarksCountFromTheBeginningOfTheFile) {
  std::string lines;
  std::vector<int32_t> ids;
  std::vector<int64_t> marks;
  for (int i = 0; i < 30'000; ++i) {
    lines += R"({"prompt": "two ", "answer": "more words"})" + std::string(1 + i % 3, '\n');
    ids.insert(ids.end(), {4, 5, 5, 999});
    marks.insert(marks.end(), {4 * i + 1, 4 * i + 4});
  }
  Corpus corpus = corpus_of({lines}, Corpus::Kind::examples);
  for (const int threads : {1, 3}) {
    std::vector<int64_t> found;
    EXPECT_EQ(ids_of(corpus, threads, &found), ids);
    EXPECT_EQ(found, marks);
  }
  corpus.documents[0].text += R"({"text": "?"})";
  expect_contains(user_error([&] { ids_of(corpus, 2); }), {"a0:60001: a question at byte 0"});
}

int32_t id_at(const Tokens& tokens, int64_t place) {
  int32_t id = 0;
  tokens.copy(place, 1, &id);
  return id;
}

TEST(Tokens, Of16And32BitsAreTheSame) {
  std::vector<int32_t> ids(100);
  std::iota(ids.begin(), ids.end(), 65436);
  const auto narrow = std::make_shared<std::vector<uint16_t>>(ids.begin(), ids.end());
  const Tokens wide = ids;
  const std::shared_ptr<const std::byte> memory(narrow, reinterpret_cast<const std::byte*>(narrow->data()));
  const Tokens of_16(Bytes(memory, 200), 0, 100, 2);
  for (const Tokens& tokens : {wide, of_16, of_16.slice(0, 100)}) {
    EXPECT_EQ(tokens.size(), 100);
    EXPECT_EQ(id_at(tokens, 99), 65535);
    const Tokens part = tokens.slice(10, 90).slice(5, 25);
    std::vector<int32_t> copied(20);
    part.copy(0, 20, copied.data());
    EXPECT_EQ(copied, std::vector<int32_t>(ids.begin() + 15, ids.begin() + 35));
    EXPECT_THROW(id_at(part, 20), Error);
    EXPECT_THROW(tokens.slice(50, 101), Error);
  }
}

// Ids of a file are read when they are wanted. A failure to read them is an error with its name.
TEST(Tokens, OfAFileAreThoseInMemory) {
  const TemporaryDirectory directory;
  std::vector<uint16_t> narrow(10'000);
  std::iota(narrow.begin(), narrow.end(), 3);
  const std::string path = directory / "ids";
  write_text(path, std::string(8, 'h') + std::string(reinterpret_cast<const char*>(narrow.data()), 20'000));
  const Tokens tokens = Tokens(Bytes::of_file(path), 8, 10'000, 2).slice(1, 9'999);
  std::vector<int32_t> ids(9'000), expected(9'000);
  std::iota(expected.begin(), expected.end(), 504);
  tokens.copy(500, 9'000, ids.data());
  EXPECT_EQ(ids, expected);
  EXPECT_EQ(id_at(tokens, 9'997), 10'001);
  std::filesystem::resize_file(path, 5'000);
  expect_contains(error_of([&] { tokens.copy(500, 9'000, ids.data()); }), {path, "ends at byte 5000"});
}

}  // namespace
}  // namespace lockstep
