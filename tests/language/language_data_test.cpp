// SPDX-License-Identifier: Apache-2.0
// Starts on large texts: which of their bytes are read, and in how much memory.
#include "lockstep/language/language_data.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/core/hash.h"
#include "lockstep/data/corpus.h"
#include "lockstep/data/read_corpus.h"
#include "lockstep/language/known_facts.h"
#include "lockstep/tokenizer/char_tokenizer.h"
#include "support/temporary_directory.h"
#include "support/user_error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Returns the number after a word in a file of /proc.
int64_t number_in(const std::string& path, const std::string& word) {
  std::ifstream file(path);
  for (std::string text; file >> text;)
    if (text == word && file >> text) return std::stoll(text);
  return -1;
}

int64_t bytes_read() { return number_in("/proc/self/io", "rchar:"); }

/// Returns the time at which a file that changes now is no longer new.
std::chrono::system_clock::time_point later() {
  return std::chrono::system_clock::now() + std::chrono::seconds(10);
}

/// Tests with a cache of their own.
class LargeText : public testing::Test {
 protected:
  void SetUp() override { ::setenv("XDG_CACHE_HOME", (temporary_ / "cache").c_str(), 1); }

  static TextOptions text_at(const std::string& path) {
    return {.dataset = path, .tokenizer = NamedTokenizer::characters, .block_size = 8};
  }
  std::vector<fs::path> files(const std::string& extension) const {
    std::vector<fs::path> found;
    std::error_code missing;
    for (const auto& entry : fs::directory_iterator(temporary_ / "cache/lockstep", missing))
      if (entry.path().extension() == extension) found.push_back(entry.path());
    return found;
  }
  /// Returns the bytes that measuring a corpus reads now.
  int64_t bytes_to_measure(const std::string& path, const CorpusFacts& expected) const {
    const int64_t before = bytes_read();
    const CorpusFacts facts = facts_of(local_corpus(path), later());
    EXPECT_EQ(facts.hash, expected.hash);
    EXPECT_EQ(facts.bytes, expected.bytes);
    EXPECT_EQ(facts.count, expected.count);
    EXPECT_EQ(facts.alphabet, expected.alphabet);
    return bytes_read() - before;
  }

  TemporaryDirectory temporary_;
  const std::string path_ = temporary_ / "large.txt";
  const std::string text_ = sample_text(40'000) + "\n\u00fc";
};

TEST_F(LargeText, ThatHasNotChangedIsNotReadAgain) {
  write_text(path_, text_);
  const CorpusFacts facts = measure(local_corpus(path_));
  EXPECT_GE(bytes_to_measure(path_, facts), std::ssize(text_));
  EXPECT_LT(bytes_to_measure(path_, facts), 10'000);
  EXPECT_LT(bytes_to_measure(fs::relative(path_).string(), facts), 10'000) << "by another name";
  // The first start encodes the text, and later ones read only its ids.
  const LanguageData first = load_language_data(text_at(path_), {.threads = 2}, World::alone());
  const int64_t before = bytes_read();
  const LanguageData second = load_language_data(text_at(path_), {.threads = 2}, World::alone());
  EXPECT_LT(bytes_read() - before, 2 * std::ssize(text_) + 20'000) << "ids have two bytes each";
  EXPECT_EQ(second.text_hash, hash_text(hash_of(text_)));
  EXPECT_EQ(second.description, first.description);
  EXPECT_EQ(second.id_bytes, 0);
}

TEST_F(LargeText, ThatHasChangedAtEqualSizeIsReadAgain) {
  write_text(path_, text_);
  facts_of(local_corpus(path_), later());
  ASSERT_EQ(files(".corpus").size(), 1U);
  const auto time = fs::last_write_time(path_);
  std::string other = text_;
  other[1'000'000] = '!';
  // Its time of modification is set back, as some programs do.
  write_text(path_, other);
  fs::last_write_time(path_, time);
  const CorpusFacts facts = measure(local_corpus(path_));
  EXPECT_NE(facts.hash, hash_of(text_));
  EXPECT_GE(bytes_to_measure(path_, facts), std::ssize(text_));
  EXPECT_LT(bytes_to_measure(path_, facts), 10'000) << "the new record";
}

TEST_F(LargeText, ThatIsNewIsNotRecorded) {
  write_text(path_, text_);
  facts_of(local_corpus(path_));
  EXPECT_TRUE(files(".corpus").empty()) << "it may change again within the same tick of the file system";
  write_text(temporary_ / "small.txt", text_.substr(0, 1000));
  facts_of(local_corpus(temporary_ / "small.txt"), later());
  EXPECT_TRUE(files(".corpus").empty()) << "a small text";
}

TEST_F(LargeText, ADamagedRecordIsNotUsed) {
  write_text(path_, text_);
  const CorpusFacts facts = facts_of(local_corpus(path_), later());
  const std::string record = files(".corpus").at(0), whole = read_text(record);
  for (size_t byte = 0; byte < whole.size(); byte += 5) {
    std::string damaged = whole;
    damaged[byte] = static_cast<char>(damaged[byte] ^ 1);
    write_text(record, damaged);
    EXPECT_GE(bytes_to_measure(path_, facts), std::ssize(text_)) << byte;
    EXPECT_EQ(read_text(record), whole) << byte;
  }
  for (const size_t length : {size_t{0}, size_t{1}, size_t{16}, whole.size() - 1}) {
    write_text(record, whole.substr(0, length));
    EXPECT_GE(bytes_to_measure(path_, facts), std::ssize(text_)) << length;
  }
  fs::remove(record);
  fs::create_directory(record);
  EXPECT_GE(bytes_to_measure(path_, facts), std::ssize(text_)) << "a record that cannot be read";
}

TEST_F(LargeText, OfAFolderIsReadAgainIfAnyDocumentChanges) {
  fs::create_directories(temporary_ / "texts");
  for (const char* name : {"a.txt", "b.txt", "c.txt"})
    write_text(temporary_ / "texts/" + name, sample_text(15'000));
  const std::string folder = temporary_ / "texts";
  const CorpusFacts facts = facts_of(local_corpus(folder), later());
  EXPECT_LT(bytes_to_measure(folder, facts), 10'000);
  fs::rename(temporary_ / "texts/c.txt", temporary_ / "texts/d.txt");
  EXPECT_GE(bytes_to_measure(folder, facts), facts.bytes);
  write_text(temporary_ / "texts/e.txt", "more");
  const CorpusFacts more = measure(local_corpus(folder));
  EXPECT_EQ(more.count, facts.count + 4);
  EXPECT_GE(bytes_to_measure(folder, more), more.bytes);
}

// Every rank has to know the kind that rank 0 reads in the file.
TEST_F(LargeText, OfExamplesIsToldByItsFirstLineOnEveryRank) {
  std::string lines;
  while (std::ssize(lines) < 2 * least_cached_bytes)
    lines += "{\"prompt\": \"a\", \"answer\": \"\\u00e9\"}\r\n";
  write_text(temporary_ / "x.txt", lines);
  EXPECT_EQ(facts_of(local_corpus(temporary_ / "x.txt"), later()).alphabet, "a\u00e9");
  EXPECT_LT(bytes_to_measure(temporary_ / "x.txt", measure(local_corpus(temporary_ / "x.txt"))),
            2 * std::ssize(lines));
  run_ranks(2, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    const LanguageData data = load_language_data(text_at(temporary_ / "x.txt"), {.threads = 2}, world);
    expect_contains(data.description, {"examples from", "loss on answers"});
  });
}

// The record is of another text, as if the file system's clock had not moved between two changes.
TEST_F(LargeText, AWrongRecordIsNoticedAndForgotten) {
  write_text(path_, text_);
  facts_of(local_corpus(path_), later());
  const std::string record = files(".corpus").at(0);
  std::string text = read_text(record);
  text.resize(text.size() - 16);
  const std::string hash = std::to_string(hash_of(text_));
  ASSERT_NE(text.find(hash), std::string::npos);
  text.replace(text.find(hash), hash.size(), "12345");
  write_text(record, text + hash_text(hash_of(text)));
  expect_contains(user_error([&] { load_language_data(text_at(path_), {.threads = 2}, World::alone()); }),
                  {path_, "has changed since it was read"});
  EXPECT_TRUE(files(".tokens").empty());
  const LanguageData data = load_language_data(text_at(path_), {.threads = 2}, World::alone());
  EXPECT_EQ(data.text_hash, hash_text(hash_of(text_)));
}

TEST_F(LargeText, WithoutACacheItsIdsAreInMemory) {
  write_text(path_, text_);
  write_text(temporary_ / "file", "where the folder should be");
  ::setenv("XDG_CACHE_HOME", (temporary_ / "file").c_str(), 1);
  testing::internal::CaptureStderr();
  const LanguageData data = load_language_data(text_at(path_), {.threads = 2}, World::alone());
  expect_contains(testing::internal::GetCapturedStderr(), {"cannot be kept in a file"});
  EXPECT_EQ(data.id_bytes, 48 + 2 * (std::ssize(text_) - 1)) << "the last character has two bytes";
  EXPECT_EQ(data.text_hash, hash_text(hash_of(text_)));
}

/// Returns by how many bytes a call raises this process's memory at most, without files that it maps.
template <class Call>
int64_t memory_of(Call call) {
  const auto kib = [](const char* word) { return number_in("/proc/self/status", word); };
  std::ofstream("/proc/self/clear_refs") << 5;  // sets VmHWM to VmRSS
  const int64_t before = kib("VmHWM:");
  if (before > kib("VmRSS:") + 1024) return -1;  // this kernel cannot
  call();
  return 1024 * (kib("VmHWM:") - before);
}

TEST_F(LargeText, IsNeverInMemoryAsAWhole) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps freed memory";
#endif
  const std::string lines = sample_text(10'000);
  std::ofstream file(path_, std::ios::binary);
  for (int i = 0; i < 200; ++i) file << lines << i << "\u20ac";
  file.close();
  const int64_t taken =
      memory_of([&] { load_language_data(text_at(path_), {.threads = 2}, World::alone()); });
  if (taken < 0) GTEST_SKIP() << "this kernel does not reset VmHWM";
  EXPECT_EQ(files(".tokens").size(), 1U);
  EXPECT_LT(taken, 80 << 20) << "a text of 61 MiB, with 122 MiB of ids";
}

}  // namespace
}  // namespace lockstep
