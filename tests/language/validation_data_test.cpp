// SPDX-License-Identifier: Apache-2.0
// Tests of data.validation: a text of its own for validation.
#include <cstdlib>
#include <gtest/gtest.h>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/core/hash.h"
#include "lockstep/core/text.h"
#include "lockstep/language/language_data.h"
#include "support/temporary_directory.h"
#include "support/user_error.h"

namespace lockstep::validation_data_test {
namespace {

/// Returns the inputs and targets of a sample.
std::vector<int32_t> sample_of(const lockstep::Dataset& data, int64_t index) {
  const auto size = static_cast<size_t>(data.input().shape.elements());
  std::vector<int32_t> ids(2 * size);
  data.fetch(index, ids.data(), ids.data() + size);
  return ids;
}

class ValidationData : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("XDG_CACHE_HOME", (directory_ / "cache").c_str(), 1);
    set_wording({{"dataset", "data.dataset"}, {"validation", "data.validation"}});
    write_text(directory_ / "train.txt", "abcabcabcabc");
    write_text(directory_ / "valid.txt", "abcdabcd");
    write_text(directory_ / "valid.jsonl", "{\"prompt\": \"ab\", \"answer\": \"ca\"}\n{\"text\": \"abc\"}\n");
  }

  TextOptions text(const std::string& validation, const std::string& dataset = "train.txt") const {
    TextOptions options;
    options.dataset = directory_ / dataset;
    options.validation = validation.empty() ? "" : directory_ / validation;
    options.tokenizer = NamedTokenizer::characters;
    options.block_size = 3;
    options.train_split = 0.5;
    return options;
  }
  LanguageData load(const TextOptions& options) const {
    return load_language_data(options, {.threads = 1}, World::alone());
  }
  std::string refused(const std::string& name, const std::string& contents) const {
    write_text(directory_ / name, contents);
    return user_error([&] { load(text(name)); });
  }

  TemporaryDirectory directory_;
};

TEST_F(ValidationData, IsAFileAndAllOfTheDatasetTrains) {
  const LanguageData split = load(text(""));
  EXPECT_EQ(split.training->size(), 1) << "six characters have one window of 3 and a target";
  EXPECT_EQ(split.validation_hash, "");
  const LanguageData data = load(text("valid.txt"));
  EXPECT_EQ(data.training->size(), 3);
  EXPECT_EQ(sample_of(*data.training, 2), (std::vector<int32_t>{0, 1, 2, 1, 2, 0}));
  ASSERT_TRUE(data.validation);
  EXPECT_EQ(data.validation->size(), 2);
  EXPECT_EQ(sample_of(*data.validation, 0), (std::vector<int32_t>{0, 1, 2, 1, 2, 3}));
  EXPECT_EQ(data.vocabulary_size, 4) << "d is in the validation text alone";
  EXPECT_EQ(data.text_hash, hash_text(hash_of("abcabcabcabc")));
  EXPECT_EQ(data.validation_hash, hash_text(hash_of("abcdabcd")));
  expect_contains(data.description, {"12 characters from", "train.txt, 4 symbols\nvalidation: ",
                                     "8 characters from", "valid.txt, 4 symbols"});
}

TEST_F(ValidationData, MayBeExamplesAndIsEqualOnAllRanks) {
  run_ranks(2, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    const LanguageData data = load_language_data(text("valid.jsonl"), {.threads = 1}, world);
    EXPECT_EQ(data.training->size(), 3);
    EXPECT_EQ(data.validation->size(), 2);
    EXPECT_EQ(data.validation->counted_targets(0), 2);
    EXPECT_EQ(sample_of(*data.validation, 0), (std::vector<int32_t>{0, 1, 2, -1, 2, 0}));
    expect_contains(data.description, {"validation: 2 examples from", "loss on answers"});
  });
}

TEST_F(ValidationData, HasTheNamesOfTheDataset) {
  TextOptions options = text("valid.txt");
  options.validation = NamedText::sample;
  expect_contains(load(options).description, {"validation: Generated lines, ", "the built-in sample"});
  write_text(directory_ / "tinyshakespeare.txt", "abcabc");
  ::setenv("LOCKSTEP_DATA_DIR", directory_.path().c_str(), 1);
  options.validation = NamedText::shakespeare;
  expect_contains(load(options).description, {"validation: Shakespeare, 6 characters"});
  ::unsetenv("LOCKSTEP_DATA_DIR");
  options.validation = "file:///none.txt";
  const std::string missing = user_error([&] { load(options); });
  expect_contains(missing, {"data.validation = file:///none.txt: ", "or use the built-in text, sample"});
  EXPECT_EQ(missing.find("data.dataset"), std::string::npos) << missing;
}

TEST_F(ValidationData, MayHaveTheOnlyColumns) {
  write_text(directory_ / "columns.jsonl", "{\"q\": \"ab\", \"a\": \"ca\"}\n");
  TextOptions options = text("columns.jsonl");
  options.columns = "q:a";
  EXPECT_EQ(load(options).validation->counted_targets(0), 2);
  options = text("valid.txt");
  options.columns = "q:a";
  expect_contains(user_error([&] { load(options); }), {"data.columns = q:a", "has no examples"});
}

TEST_F(ValidationData, ThatCannotBeUsedIsNamedByItsKey) {
  const std::string of_key = "data.validation";
  const std::string missing = user_error([&] { load(text("none.txt")); });
  EXPECT_EQ(missing.find(of_key + " = " + (directory_ / "none.txt")), 0U) << missing;
  EXPECT_EQ(refused("empty.txt", "").find(of_key + ": "), 0U);
  EXPECT_EQ(refused("bytes.txt", "\xFF").find(of_key + ": "), 0U);
  expect_contains(refused("short.txt", "abc"), {of_key, "short.txt has 3 tokens, and 4 are needed"});
  expect_contains(refused("one.jsonl", "{\"text\": \"a\"}\n"), {of_key, "has no example with a target"});
  expect_contains(refused("keys.jsonl", "{\"prompt\": \"a\"}\n"), {"keys.jsonl:1 has the key"});
  TextOptions random = text("valid.txt");
  random.dataset = NamedText::random_tokens;
  expect_contains(user_error([&] { load_language_data(random, {.vocab_size = 9}, World::alone()); }),
                  {of_key, "random_tokens has no tokenizer"});
  const std::string dataset = user_error([&] { load(text("valid.txt", "none.txt")); });
  EXPECT_EQ(dataset.find("data.dataset = "), 0U) << dataset;
}

}  // namespace
}  // namespace lockstep::validation_data_test
