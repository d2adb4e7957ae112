// SPDX-License-Identifier: Apache-2.0
#include "data/corpus.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>

#include "core/error.h"
#include "support/temporary_directory.h"
#include "support/user_error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class CorpusTest : public testing::Test {
 protected:
  void SetUp() override { ::unsetenv("LOCKSTEP_DATA_DIR"); }

  std::string write(const fs::path& name, const std::string& contents) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << contents;
    return (folder_ / name).string();
  }

  TemporaryDirectory temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(CorpusTest, ReadsAFile) {
  const std::string path = write("poem.txt", "sm\u00e5tt");
  const Corpus corpus = local_corpus(path);
  EXPECT_EQ(corpus.text, "sm\u00e5tt");
  EXPECT_EQ(corpus.source, path);
  EXPECT_EQ(corpus.description, "Text, 5 characters from " + path);
}

TEST_F(CorpusTest, LooksIntoTheDataFolder) {
  write("data/poem.txt", "roses");
  EXPECT_EQ(find_in_data_folder("poem.txt"), "");
  ::setenv("LOCKSTEP_DATA_DIR", (folder_ / "data").c_str(), 1);
  EXPECT_EQ(local_corpus("poem.txt").text, "roses");
  EXPECT_EQ(find_in_data_folder("prose.txt"), "");
}

TEST_F(CorpusTest, SampleNeedsNothing) {
  const Corpus corpus = local_corpus("sample");
  EXPECT_EQ(corpus.description, "Generated lines, 1,024,000 characters from the built-in sample");
  EXPECT_EQ(corpus.text.size(), 1024000u);
}

TEST_F(CorpusTest, NamesAMissingFile) {
  const std::string path = (folder_ / "missing.txt").string();
  expect_contains(user_error([&] { local_corpus(path); }), {"data.dataset = " + path, "no such file"});
  expect_contains(user_error([&] { local_corpus(folder_.string()); }),
                  {"data.dataset = " + folder_.string(), "no *.txt in this folder"});
  expect_contains(user_error([&] { local_corpus(""); }), {"data.dataset = "});
}

TEST_F(CorpusTest, RefusesEmptyAndBinaryFiles) {
  const std::string empty = write("empty.txt", "");
  const std::string binary = write("binary.txt", std::string("\x7F"
                                                             "ELF\0",
                                                             5));
  expect_contains(user_error([&] { local_corpus(empty); }), {"data.dataset", empty, "is empty"});
  expect_contains(user_error([&] { local_corpus(binary); }),
                  {"data.dataset", binary, "is not text", "byte 4"});
}

}  // namespace
}  // namespace lockstep
