// SPDX-License-Identifier: Apache-2.0
// Files of conversations and of columns that the user names.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "lockstep/comm/world.h"
#include "lockstep/core/hash.h"
#include "lockstep/language/known_facts.h"
#include "lockstep/language/language_data.h"
#include "support/temporary_directory.h"
#include "support/user_error.h"
#include "tokenizer/golden_tokenizers.h"

namespace lockstep {
namespace {

const std::string chat_lines =
    R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Bye"}]})"
    "\n"
    R"({"messages": [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}]})"
    "\n";

class Conversations : public testing::Test {
 protected:
  void SetUp() override { ::setenv("XDG_CACHE_HOME", (temporary_ / "cache").c_str(), 1); }

  std::string write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(temporary_ / name).parent_path());
    write_text(temporary_ / name, text);
    return temporary_ / name;
  }
  TextOptions options(const std::string& text, const std::string& family) const {
    TextOptions options{
        .dataset = write("x.jsonl", text), .tokenizer = golden_families + family, .block_size = 32};
    options.train_split = 1;
    return options;
  }
  static LanguageData load(const TextOptions& options) {
    return load_language_data(options, {}, World::alone());
  }
  static int64_t targets(const LanguageData& data) {
    int64_t sum = 0;
    for (int64_t i = 0; i < data.training->size(); ++i) sum += data.training->counted_targets(i).value_or(0);
    return sum;
  }

  TemporaryDirectory temporary_;
};

TEST_F(Conversations, AreWrittenByTheTemplateOfTheTokenizer) {
  TextOptions text = options(chat_lines, "smollm2");
  const LanguageData ours = load(text);
  const auto count = [&](const std::string& answer) {
    return std::ssize(ours.tokenizer->encode(answer)) + 1;
  };
  EXPECT_EQ(targets(ours), count("Hello!") + count("4"));
  expect_contains(
      ours.description,
      {"2 examples from ", "in the template chatml with the system message \"You are a helpful AI"});
  // Without the system message that the tokenizer's template adds, the text is another.
  text.chat_template = ChatFormat::chatml;
  const LanguageData plain = load(text);
  EXPECT_EQ(targets(plain), targets(ours));
  EXPECT_NE(plain.text_hash, ours.text_hash);
  text.loss_on = LossOn::all;
  EXPECT_GT(targets(load(text)), targets(ours));
}

TEST_F(Conversations, NeedATemplateAndItsTokens) {
  TextOptions text = options(chat_lines, "llama3");
  text.chat_template = ChatFormat::chatml;
  expect_contains(user_error([&] { load(text); }),
                  {"x.jsonl has conversations, but the tokenizer has no special token <|im_start|>"});
  text.tokenizer = NamedTokenizer::characters;
  text.chat_template = ChatFormat::of_tokenizer;
  expect_contains(user_error([&] { load(text); }),
                  {"tokenizer = char has no chat template", "chat_template = llama3 or chatml"});
  write("folder/tokenizer.json", read_text(golden_families + "llama3/tokenizer.json"));
  text.tokenizer =
      write("folder/chat_template.jinja", "{{ messages }}").substr(0, (temporary_ / "folder").size());
  expect_contains(user_error([&] { load(text); }), {"folder is none of those that are known"});
  text.chat_template = ChatFormat::llama3;
  EXPECT_GT(targets(load(text)), 0);
}

TEST_F(Conversations, TemplateInAFileOfItsOwnCounts) {
  const std::string folder =
      write("folder/tokenizer.json", read_text(golden_families + "llama3/tokenizer.json"));
  write("folder/tokenizer_config.json", read_text(golden_families + "llama3/tokenizer_config.json"));
  const auto before = load_tokenizer(folder);
  EXPECT_TRUE(before->chat_template().find("<|start_header_id|>") != std::string::npos);
  write("folder/chat_template.jinja", "{{ of_its_own }}");
  EXPECT_EQ(load_tokenizer(folder)->chat_template(), "{{ of_its_own }}");
  write(
      "named.json",
      R"({"chat_template": [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]})");
  EXPECT_EQ(
      tokenizer_from_json(before->to_json(), "t", read_text(temporary_ / "named.json"))->chat_template(),
      "b");
}

TEST_F(Conversations, ColumnsAreThoseOfTheUser) {
  TextOptions text = options("{\"q\": \"ab\", \"a\": \"cd\"}\n{\"q\": \"e\", \"a\": \"f\"}\n", "smollm2");
  text.columns = "q:a";
  const LanguageData pairs = load(text);
  text.columns = "a";
  const LanguageData texts = load(text);
  EXPECT_NE(pairs.text_hash, texts.text_hash) << "their ids differ, and so do those in the cache";
  text.columns = "q:b";
  expect_contains(user_error([&] { load(text); }),
                  {"x.jsonl:1 has no column \"b\" of", "it has the keys \"a\", \"q\""});
  text.dataset = write("x.txt", "prose");
  expect_contains(user_error([&] { load(text); }), {"data.columns = q:b: data.dataset has no examples"});
}

// Before instructions were known, such a line was read as its text. A snapshot of then has other ids.
TEST_F(Conversations, InstructionsHaveAnotherHashThanTheirFile) {
  const std::string instruction = R"({"instruction": "a", "output": "b", "text": "c"})",
                    pair = R"({"prompt": "a", "answer": "b"})", plain = R"({"text": "c"})";
  EXPECT_NE(load(options(instruction, "smollm2")).text_hash, hash_text(hash_of(instruction)));
  for (const std::string& line : {pair, plain})
    EXPECT_EQ(load(options(line, "smollm2")).text_hash, hash_text(hash_of(line)));
}

// The facts of a file depend on the columns that are read.
TEST_F(Conversations, FactsAreKeptForTheirColumns) {
  std::string lines;
  for (int i = 0; i < 40'000; ++i) lines += "{\"a\": \"x\", \"b\": \"y\", \"more\": 12345}\n";
  Corpus corpus = local_corpus(write("long.jsonl", lines));
  const auto later = std::chrono::system_clock::now() + std::chrono::seconds(10);
  for (int round = 0; round < 2; ++round)
    for (const char* column : {"a", "b"}) {
      corpus.columns = columns_of(column);
      const CorpusFacts facts = facts_of(corpus, later);
      EXPECT_EQ(facts.alphabet, column == std::string("a") ? "x" : "y");
      EXPECT_EQ(facts.answers, 40'000);
    }
  std::string instructions;
  for (int i = 0; i < 40'000; ++i) instructions += "{\"instruction\": \"x\", \"output\": \"y\"}\n";
  corpus = local_corpus(write("instructions.jsonl", instructions));
  for (int round = 0; round < 2; ++round) EXPECT_EQ(facts_of(corpus, later).kind, Example::Kind::instruction);
}

}  // namespace
}  // namespace lockstep
