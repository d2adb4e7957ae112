// SPDX-License-Identifier: Apache-2.0
// The tokens that begin and end a text. tokenizer_config.json names them, and a run must carry them through.
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/huggingface/model_layout.h"
#include "lockstep/huggingface/source_model.h"
#include "lockstep/huggingface/writer.h"
#include "lockstep/tokenizer/load_tokenizer.h"
#include "lockstep/tokenizer/write_tokenizer_json.h"
#include "lockstep/writing/write_texts.h"
#include "tests/support/tiny_training.h"
#include "tests/support/user_error.h"

namespace lockstep {
namespace {

/// <|endoftext|> has the id 0. It is the end of a text unless the configuration names another token.
constexpr int32_t begin_token = 1, tool_token = 900;

/// A tokenizer and examples. Its texts end with a token that is in no list of usual names.
class TextEnds : public testing::Test {
 protected:
  void SetUp() override {
    json_ = read_text(LOCKSTEP_SOURCE_DIR "/tests/golden/tokenizers/llama3.json");
    std::filesystem::create_directory(directory_ / "tokenizer");
    write_text(directory_ / "tokenizer/tokenizer.json", json_);
    write_text(
        directory_ / "tokenizer/tokenizer_config.json",
        R"({"eos_token": "<|tool|>", "bos_token": {"content": "<|begin|>"}, "chat_template": "{{ a }}"})");
    std::string examples;
    for (int i = 0; i < 20; ++i) examples += "{\"prompt\": \"a\", \"answer\": \"b\"}\n";
    write_text(directory_ / "examples.jsonl", examples);
    config_ = tiny_config(directory_, 2);
    config_.text.dataset = directory_ / "examples.jsonl";
    config_.text.tokenizer = directory_ / "tokenizer";
    config_.model.dropout = 0;
    config_.schedule.learning_rate = config_.schedule.min_lr = 0.02;
    config_.snapshots.path = directory_ / "run/snapshots";
  }

  /// Trains on two ranks. Both must see examples that end with the token.
  void train_and_look() {
    const QuietStderr quiet;
    run_ranks(2, [&](Communicator& communicator) {
      const World world(communicator.shared_from_this());
      Job job = config_;
      job.compute.threads = 1;
      job = resolve(job, world);
      const LanguageData data = language_data(job, world, nullptr);
      EXPECT_EQ(data.tokenizer->beginning_of_text(), begin_token) << "rank " << world.rank();
      std::vector<int32_t> input(8), target(8);
      data.training->fetch(0, input.data(), target.data());
      EXPECT_EQ(target[1], tool_token) << "rank " << world.rank();
      const auto model = make_model(job, data.vocabulary_size);
      EXPECT_EQ(train(job, world, LanguageTask(job, *model, data)), 0);
    });
  }

  TemporaryDirectory directory_;
  std::string json_;
  Job config_;
};

TEST_F(TextEnds, ReachSnapshotsAndWriters) {
  train_and_look();
  const std::string snapshot = directory_ / "run/snapshots/step-00000050";
  for (const char* file : {"config.json", "generation_config.json"}) {
    const auto json = nlohmann::json::parse(read_text(snapshot + "/" + file));
    EXPECT_EQ(json["eos_token_id"], tool_token) << file;
    EXPECT_EQ(json["bos_token_id"], begin_token) << file;
  }
  convert_model(SourceModel(directory_ / "run", World::alone()), directory_ / "out", DType::f32);
  for (const char* place : {"run", "out"}) {
    const Writer writer = load_writer(directory_ / place);
    const auto written = write_texts(*make_text_model(*writer.model), *writer.tokenizer,
                                     {{.text = "a", .options = {.tokens = 20, .temperature = 0}}});
    EXPECT_EQ(written[0].finish, Finish::end_of_text) << place;
    EXPECT_EQ(written[0].text, "b") << place;
  }

  // A run's state has only a hash of its tokenizer, which is not enough to begin another run. The folder must
  // have the tokenizer itself.
  for (const char* place : {"run", "out"}) {
    Job next = tiny_config(directory_, 1);
    next.model.from = directory_ / place;
    next.text.dataset = directory_ / "examples.jsonl";
    const auto source = take_source(next, World::alone());
    const LanguageData data = language_data(next, World::alone(), source.get());
    EXPECT_EQ(data.tokenizer->to_json(), json_) << place;
    EXPECT_EQ(data.tokenizer->end_of_text(), tool_token) << place;
    EXPECT_EQ(data.tokenizer->chat_template(), "{{ a }}") << place;
    next.text.tokenizer = NamedTokenizer::characters;
    expect_contains(user_error([&] { language_data(next, World::alone(), source.get()); }),
                    {"data.tokenizer = char is not the tokenizer of model.from"});
  }
  // transformers 5 writes the template of conversations to a file of its own.
  write_text(directory_ / "out/chat_template.jinja", "{{ b }}");
  EXPECT_EQ(load_writer(directory_ / "out").tokenizer->chat_template(), "{{ b }}");
}

TEST_F(TextEnds, TellTokenizersApart) {
  const auto named = load_tokenizer(directory_ / "tokenizer"), usual = tokenizer_from_json(json_, "json");
  EXPECT_EQ(named->to_json(), usual->to_json());
  EXPECT_NE(tokenizer_hash(*named), tokenizer_hash(*usual));
  EXPECT_EQ(tokenizer_hash(*named),
            tokenizer_hash(*tokenizer_from_json(json_, "json", tokenizer_config_json(*named))));
  expect_contains(
      user_error([&] { tokenizer_from_json(json_, "json", R"({"eos_token": "<|x|>"})", "x/config.json"); }),
      {"x/config.json", "<|x|>"});
}

TEST(ModelFromWithoutTokenizer, TakesRandomTokens) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 1);
  job.model.from = LOCKSTEP_SOURCE_DIR "/tests/golden/huggingface/untied";
  const auto source = take_source(job, World::alone());
  expect_contains(user_error([&] { language_data(job, World::alone(), source.get()); }),
                  {"has no tokenizer", "data.tokenizer = auto"});
  job.text.dataset = NamedText::random_tokens;
  EXPECT_EQ(language_data(job, World::alone(), source.get()).tokenizer, nullptr);
}

}  // namespace
}  // namespace lockstep
