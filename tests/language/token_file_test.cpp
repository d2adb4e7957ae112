// SPDX-License-Identifier: Apache-2.0
#include "lockstep/language/token_file.h"

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <span>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/data/corpus.h"
#include "lockstep/language/language_data.h"
#include "lockstep/tokenizer/char_tokenizer.h"
#include "lockstep/tokenizer/load_tokenizer.h"
#include "support/small_files.h"
#include "support/temporary_directory.h"
#include "support/user_error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const std::vector<int32_t> some_ids{3, 1, 4, 1, 5, 9, 2, 6, 5};
const std::vector<int64_t> some_marks{5, 9};

/// Gives ids and their marks in two parts.
void give_some(const TakeIds& take) {
  take(std::span(some_ids).first(4), std::span(some_marks).first(1));
  take(std::span(some_ids).subspan(4), std::span(some_marks).subspan(1));
}

const TokenLayout some_layout{.key = 7, .vocabulary_size = 10, .answers = 1};

ino_t inode_of(const fs::path& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_ino;
}

std::vector<int32_t> ids_of(const TokenImage& image) {
  const Tokens tokens = image.tokens();
  std::vector<int32_t> ids(static_cast<size_t>(tokens.size()));
  tokens.copy(0, tokens.size(), ids.data());
  return ids;
}

/// Tests with a cache of their own.
class TokenFile : public testing::Test {
 protected:
  void SetUp() override { use_cache(temporary_ / "cache"); }
  static void use_cache(const std::string& folder) { ::setenv("XDG_CACHE_HOME", folder.c_str(), 1); }
  std::vector<fs::path> files() const {
    const fs::path folder = temporary_ / "cache/lockstep";
    if (!fs::exists(folder)) return {};
    return {fs::directory_iterator(folder), fs::directory_iterator()};
  }

  /// Encodes on two ranks. Returns the ids of both if they are equal. Counts the encodings in made_.
  std::vector<int32_t> on_two_ranks(uint64_t key, int64_t vocabulary = 10) {
    std::vector<std::vector<int32_t>> found(2);
    run_ranks(2, [&](Communicator& communicator) {
      const World world(communicator.shared_from_this());
      const TokenLayout layout{.key = key, .vocabulary_size = vocabulary, .answers = 1};
      const TokenImage image = shared_tokens(world, layout, [&](const TakeIds& take) {
        ++made_;
        give_some(take);
      });
      EXPECT_EQ(image.marks().read(0, 1).all, (std::vector<Marks::Answer>{{5, 9, false}}));
      found[static_cast<size_t>(world.rank())] = ids_of(image);
    });
    EXPECT_EQ(found[0], found[1]);
    return found[0];
  }

  int made_ = 0;
  TemporaryDirectory temporary_;
};

TEST_F(TokenFile, IsMadeOnceAndFoundAgain) {
  for (int run = 0; run < 2; ++run) EXPECT_EQ(on_two_ranks(7), some_ids);
  EXPECT_EQ(made_, 1);
  ASSERT_EQ(files().size(), 1U);
  EXPECT_EQ(fs::file_size(files()[0]), 48 + 2 * 8 + 9 * 2) << "16 bits each";
  EXPECT_EQ(on_two_ranks(8, 65537), some_ids);
  EXPECT_EQ(made_, 2) << "another key needs another file";
  EXPECT_EQ(fs::file_size(files()[0]) + fs::file_size(files()[1]), 2 * (48 + 2 * 8) + 9 * 2 + 9 * 4);
}

TEST_F(TokenFile, AnyDamageIsSeenAndMended) {
  on_two_ranks(7);
  const std::string path = files().at(0), whole = read_text(path);
  for (size_t byte = 0; byte < whole.size(); byte += 3) {
    std::string damaged = whole;
    damaged[byte] = static_cast<char>(damaged[byte] ^ 0x11);
    write_text(path, damaged);
    testing::internal::CaptureStderr();
    EXPECT_EQ(on_two_ranks(7), some_ids) << byte;
    expect_contains(testing::internal::GetCapturedStderr(), {path + " is damaged and is made again"});
    EXPECT_EQ(read_text(path), whole) << byte;
  }
  for (const size_t length : {size_t{0}, size_t{47}, whole.size() - 1}) {
    write_text(path, whole.substr(0, length));
    testing::internal::CaptureStderr();
    EXPECT_EQ(on_two_ranks(7), some_ids) << length;
    testing::internal::GetCapturedStderr();
  }
}

TEST_F(TokenFile, WithoutAPlaceToKeepItItLiesInMemory) {
  write_text(temporary_ / "file", "where the folder should be");
  use_cache(temporary_ / "file");
  testing::internal::CaptureStderr();
  EXPECT_EQ(on_two_ranks(7), some_ids);
  EXPECT_EQ(made_, 1);
  const std::string said = testing::internal::GetCapturedStderr();
  expect_contains(said, {"cannot be kept"});
  EXPECT_EQ(said.find("cannot be kept"), said.rfind("cannot be kept")) << said;
}

// Rank 0 sees the damage and cannot write another file. The other ranks must not use the damaged one.
TEST_F(TokenFile, ADamagedFileThatCannotBeMendedIsNobodys) {
  const std::vector<int32_t> ids(100'000, 5);
  std::array<int, 2> made{};
  const auto all_have_them = [&](size_t time) {
    run_ranks(3, [&](Communicator& communicator) {
      const World world(communicator.shared_from_this());
      const TokenLayout layout{.key = 7, .vocabulary_size = 10, .answers = 0};
      const TokenImage image = shared_tokens(world, layout, [&](const TakeIds& take) {
        ++made.at(time);
        for (size_t begin = 0; begin < ids.size(); begin += 10'000)
          take(std::span(ids).subspan(begin, 10'000), {});
      });
      EXPECT_EQ(ids_of(image), ids) << "rank " << world.rank();
    });
  };
  all_have_them(0);
  std::string damaged = read_text(files().at(0));
  damaged[100'001] = 1;
  write_text(files()[0], damaged);
  testing::internal::CaptureStderr();
  {
    const SmallFiles limit(65536);
    all_have_them(1);
  }
  expect_contains(testing::internal::GetCapturedStderr(),
                  {"is damaged and is made again", "cannot be kept", "File too large"});
  EXPECT_EQ(made, (std::array<int, 2>{1, 1}));
  EXPECT_EQ(files().size(), 1U) << "no other file may be left";
  EXPECT_TRUE(read_text(files()[0]) == damaged);
}

// Two runs encode the same text at the same time. The second run does not replace the file that the first has
// kept and mapped.
TEST_F(TokenFile, AFileThatAnotherRunHasKeptMeanwhileStays) {
  fs::path path;
  ino_t inode = 0;
  const TokenImage found = shared_tokens(World::alone(), some_layout, [&](const TakeIds& take) {
    shared_tokens(World::alone(), some_layout, give_some);
    path = files().at(0);
    inode = inode_of(path);
    give_some(take);
  });
  EXPECT_EQ(ids_of(found), some_ids);
  EXPECT_EQ(inode_of(path), inode);
  EXPECT_EQ(files().size(), 1U);
  // A damaged file is replaced.
  fs::remove(path);
  const TokenImage again = shared_tokens(World::alone(), some_layout, [&](const TakeIds& take) {
    write_text(path, "another's");
    give_some(take);
  });
  EXPECT_EQ(ids_of(again), some_ids);
  EXPECT_TRUE(bool(TokenImage::of_file(path, 7, true)));
}

TEST_F(TokenFile, WhatCannotBeEncodedIsEverybodysError) {
  run_ranks(2, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    const auto fail = [](const TakeIds& take) {
      give_some(take);
      throw UserError("no such character");
    };
    expect_contains(user_error([&] { shared_tokens(world, some_layout, fail); }), {"no such character"});
  });
  EXPECT_TRUE(files().empty());
}

/// Returns whether the file system of a folder has files without a name.
bool has_nameless_files(const std::string& folder) {
  const int file = ::open(folder.c_str(), O_RDWR | O_TMPFILE, 0600);
  if (file >= 0) ::close(file);
  return file >= 0;
}

// The process ends while it encodes, as if it was killed.
TEST_F(TokenFile, AKilledStartLeavesNothing) {
  if (!has_nameless_files(temporary_.path())) GTEST_SKIP() << "this file system shows unfinished files";
  const pid_t child = ::fork();
  if (child == 0)
    shared_tokens(World::alone(), some_layout, [](const TakeIds& take) {
      give_some(take);
      ::kill(::getpid(), SIGKILL);
    });
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_TRUE(fs::exists(temporary_ / "cache/lockstep"));
  EXPECT_TRUE(files().empty());
}

// Unfinished files of other versions and file systems are removed a day later, and no other files are.
TEST_F(TokenFile, LeftoversOfKilledStartsAreRemoved) {
  const std::string folder = temporary_ / "cache/lockstep/";
  fs::create_directories(folder);
  const std::string leftover = folder + "2bf8fcb14e867fb3.tokens.30482-4289464853-0.tmp";
  const std::vector<std::string> others = {folder + "2bf8fcb14e867fb3.tokens.30482-4289464853-1.tmp",
                                           folder + "my.tmp", folder + "notes.1-2.tmp", folder + "a.tokens"};
  for (const std::string& name : others) write_text(name, "x");
  write_text(leftover, "x");
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(25);
  fs::last_write_time(leftover, old);
  for (size_t i = 1; i < others.size(); ++i) fs::last_write_time(others[i], old);
  EXPECT_EQ(on_two_ranks(7), some_ids);
  EXPECT_FALSE(fs::exists(leftover));
  for (const std::string& name : others) EXPECT_TRUE(fs::exists(name)) << name;
}

using Dataset = std::variant<NamedText, std::string>;
using TokenizerChoice = std::variant<NamedTokenizer, std::string>;

/// Loads a text for a run with two threads.
LanguageData load_text(const Dataset& dataset, const TokenizerChoice& tokenizer,
                       const std::shared_ptr<const Tokenizer>& of_model = nullptr,
                       const TextReader& reader = {.threads = 2}) {
  return load_language_data({.dataset = dataset, .tokenizer = tokenizer, .block_size = 8}, reader,
                            World::alone(), of_model);
}

std::vector<int32_t> first_window(const LanguageData& data) {
  std::vector<int32_t> input(8), target(8);
  data.training->fetch(0, input.data(), target.data());
  return input;
}

TEST_F(TokenFile, ALargeTextIsInAFileAndASmallOneIsNot) {
  const std::string text = sample_text(33000), path = temporary_ / "large.txt";
  write_text(path, text);
  const LanguageData large = load_text(path, NamedTokenizer::characters);
  EXPECT_EQ(files().size(), 1U);
  const LanguageData small = load_text(NamedText::sample, NamedTokenizer::of_model);
  EXPECT_EQ(files().size(), 1U);
  EXPECT_EQ(first_window(large), first_window(small));
  EXPECT_EQ(first_window(large), CharTokenizer(text).encode(text.substr(0, 8)));
}

TEST_F(TokenFile, ATokenizersFileCountsByItsContents) {
  write_text(temporary_ / "text.txt", sample_text(50));
  // The tokenizer has more characters than the text, so its ids differ.
  const std::string json = CharTokenizer(sample_text(2000) + "!\"#$").to_json();
  write_text(temporary_ / "tokenizer.json", json);
  const std::string text = temporary_ / "text.txt";
  const LanguageData of_file = load_text(text, temporary_ / "tokenizer.json");
  const LanguageData of_folder = load_text(text, temporary_.path());
  EXPECT_EQ(of_file.tokenizer->to_json(), of_folder.tokenizer->to_json());
  EXPECT_EQ(of_file.vocabulary_size, CharTokenizer(sample_text(2000) + "!\"#$").vocabulary_size());
  EXPECT_EQ(of_file.text_hash, of_folder.text_hash);
  EXPECT_EQ(first_window(of_file), of_file.tokenizer->encode(sample_text(1).substr(0, 8)));
  EXPECT_NE(first_window(of_file), first_window(load_text(text, NamedTokenizer::characters)));

  write_text(temporary_ / "text.txt", "a text with Ü\n" + sample_text(50));
  expect_contains(user_error([&] { load_text(text, temporary_.path()); }), {text, "Ü"});
  expect_contains(user_error([&] { load_text(text, "none.json"); }),
                  {"data.tokenizer = none.json", "none.json does not exist"});
}

TEST_F(TokenFile, ATokenizerWithOtherTokensThanTheModelsIsRefused) {
  const std::string path = temporary_ / "text.txt", text = sample_text(50);
  write_text(path, text);
  const auto load = [&](const TokenizerChoice& tokenizer, const std::string& of_model) {
    load_text(path, tokenizer, std::make_shared<CharTokenizer>(of_model));
  };
  expect_contains(user_error([&] { load(NamedTokenizer::characters, text + "!"); }),
                  {"data.tokenizer = char is not the tokenizer of model.from", "the id 2 is another token"});
  write_text(temporary_ / "tokenizer.json", CharTokenizer(text + "!").to_json());
  expect_contains(user_error([&] { load(temporary_ / "tokenizer.json", text); }), {"is not the tokenizer"});
  for (const char* more : {"", "\u00fc"}) EXPECT_NO_THROW(load(NamedTokenizer::characters, text + more));
  EXPECT_NO_THROW(load(NamedTokenizer::of_model, text + "!"));
}

TEST_F(TokenFile, ACharacterThatTheModelLacksIsNamed) {
  const std::string path = temporary_ / "text.txt", text = sample_text(50);
  write_text(path, text + "\u00fc\u20ac");
  const auto of_model = std::make_shared<CharTokenizer>(text + "\u00fc");
  const std::string message = user_error([&] {
    load_text(path, NamedTokenizer::characters, of_model,
              {.model = "hf", .vocab_size = of_model->vocabulary_size(), .threads = 2});
  });
  expect_contains(message, {"data.tokenizer = char", "\"\u20ac\"", "model.from = hf"});
  EXPECT_EQ(message.find("0 means"), std::string::npos) << message;
}

TEST_F(TokenFile, ATokenizerWithOtherRulesThanTheModelsIsNamed) {
  const std::string path = temporary_ / "text.txt", file = temporary_ / "tokenizer.json";
  write_text(path, sample_text(50));
  const std::string golden = read_text(LOCKSTEP_SOURCE_DIR "/tests/golden/tokenizers/llama3.json");
  const auto warning_for = [&](const std::function<void(nlohmann::json&)>& change) {
    auto json = nlohmann::json::parse(golden);
    change(json);
    write_text(file, json.dump());
    testing::internal::CaptureStderr();
    load_text(path, file, tokenizer_from_json(golden, "golden"));
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(warning_for([](nlohmann::json& json) { json["model"]["dropout"] = nullptr; }), "")
      << "the same tokenizer in other words";
  const std::vector<std::function<void(nlohmann::json&)>> changes = {
      [](nlohmann::json& json) { std::swap(json["model"]["merges"][0], json["model"]["merges"][1]); },
      [](nlohmann::json& json) {
        json["model"]["ignore_merges"] = !json["model"].value("ignore_merges", false);
      },
      [](nlohmann::json& json) { json["added_tokens"].erase(json["added_tokens"].size() - 1); }};
  for (const auto& change : changes)
    expect_contains(warning_for(change),
                    {"data.tokenizer = " + file, "but other merges", "data.tokenizer = auto"});
}

}  // namespace
}  // namespace lockstep
