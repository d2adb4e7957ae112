// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "lockstep/data/corpus.h"
#include "tests/support/program.h"
#include "tokenizer/golden_tokenizers.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

/// Tests of `evaluate` with a model that was trained for a few steps.
class EvaluateProgram : public testing::Test {
 protected:
  void SetUp() override {
    write_text(validation_,
               "{\"prompt\": \"- Gus\", \"answer\": \" met\"}\n{\"text\": \"- Tom saw a fox\"}\n");
    const Outcome trained =
        run_command(program("train_gpt") +
                    " data.dataset=sample data.block_size=16 model.n_layer=2 model.n_head=2 model.n_embd=16 "
                    "train.steps=20 train.batch_size=2 train.threads=1 train.eval_every=0 data.packing=false "
                    "data.validation=" +
                    validation_ + " log.dir=" + run_);
    ASSERT_EQ(trained.exit_code, 0) << trained.errors;
    write_text(text_, sample_text(50) + "Tom");
    write_text(examples_,
               "{\"prompt\": \"- Mia\", \"answer\": \" old fox\"}\n\n{\"text\": \"- Bob saw big owl\"}\n");
  }

  static Outcome evaluate(const std::string& arguments) {
    return run_command(program("evaluate") + " " + arguments);
  }
  static std::vector<Json> lines_of(const Outcome& outcome) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
    std::vector<Json> lines;
    std::istringstream text(outcome.out);
    for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
    return lines;
  }

  TemporaryDirectory directory_;
  const std::string run_ = directory_ / "run", text_ = directory_ / "a.txt",
                    examples_ = directory_ / "b.jsonl", validation_ = directory_ / "c.jsonl";
};

TEST_F(EvaluateProgram, PrintsALineForEachFile) {
  const std::string files = run_ + " " + text_ + " " + examples_;
  const Outcome plain = evaluate(files);
  EXPECT_EQ(plain.exit_code, 0) << plain.errors;
  const std::vector<Json> scores = lines_of(evaluate(files + " --json"));
  ASSERT_EQ(scores.size(), 2U);
  // 1603 characters are a hundred windows of 16 and one of 3.
  EXPECT_EQ(scores[0]["tokens"], 100 * 15 + 2);
  EXPECT_EQ(scores[1]["tokens"], 8 + 15) << "an answer, and a window of a text";
  std::istringstream lines(plain.out);
  for (const Json& score : scores) {
    const double loss = score["loss"];
    EXPECT_NEAR(loss, 3.0, 1.0);
    EXPECT_NEAR(score["perplexity"].get<double>(), std::exp(loss), 1e-12 * std::exp(loss));
    EXPECT_NEAR(score["bits_per_byte"].get<double>(), loss / std::log(2.0), 1e-12) << "a byte per character";
    std::string line;
    std::getline(lines, line);
    const std::regex form("(.*): loss ([0-9.]{8}), perplexity [0-9.]+, [0-9.]{8} bits per byte, " +
                          std::to_string(score["tokens"].get<int>()) + " tokens, " +
                          std::to_string(score["bytes"].get<int>()) + " bytes");
    std::smatch found;
    ASSERT_TRUE(std::regex_match(line, found, form)) << line;
    EXPECT_EQ(found[1], score["file"].get<std::string>());
    EXPECT_NEAR(std::stod(found[2]), loss, 5e-7);
  }
}

// Training adds the losses of a batch in fp32, and they are about 3.
TEST_F(EvaluateProgram, TheLossOfTheValidationDataIsThatOfTheTraining) {
  const Json score = lines_of(evaluate(run_ + " " + validation_ + " --json")).at(0);
  EXPECT_EQ(score["tokens"], 4 + 14);
  double of_training = 0.0;
  std::istringstream metrics(read_text(run_ + "/metrics.jsonl"));
  for (std::string line; std::getline(metrics, line);)
    of_training = Json::parse(line).value("val_loss", of_training);
  EXPECT_NEAR(score["loss"].get<double>(), of_training, 1e-6);
  const Outcome nothing = run_command(program("train_gpt") + " train.steps=0 log.dir=" + run_ +
                                      " data.validation=" + validation_);
  EXPECT_EQ(nothing.exit_code, 2);
  const std::string command = "evaluate " + run_ + " " + validation_;
  EXPECT_NE(nothing.errors.find(": " + command), std::string::npos) << nothing.errors;
  EXPECT_EQ(run_command(program("") + command).exit_code, 0) << "the command that the message names";
}

TEST_F(EvaluateProgram, TheTokensOfAFileAddUpToItsLoss) {
  const std::vector<Json> all = lines_of(evaluate("--tokens " + run_ + " " + text_));
  double sum = 0.0;
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    EXPECT_EQ(all[i]["file"], text_);
    EXPECT_EQ(read_text(text_).substr(all[i]["position"], 1), all[i]["token"]);
    sum += all[i]["logprob"].get<double>();
  }
  ASSERT_EQ(all.back()["tokens"], std::ssize(all) - 1) << "the line of the file is the last";
  EXPECT_EQ(-sum / static_cast<double>(all.size() - 1), all.back()["loss"].get<double>());
  const std::vector<Json> examples = lines_of(evaluate("--tokens " + run_ + " " + examples_));
  ASSERT_EQ(examples.size(), 24U);
  EXPECT_EQ(examples[0]["position"], 5);
  EXPECT_EQ(examples[8]["example"], 1);
  EXPECT_EQ(examples[8]["position"], 1);
}

TEST_F(EvaluateProgram, TheNumbersAreTheSameOnAnyThreadsAndRanks) {
  const std::string arguments = " --tokens --json " + run_ + " " + text_ + " " + examples_;
  const Outcome first = evaluate("--threads 1 --batch-tokens 1" + arguments);
  ASSERT_EQ(first.exit_code, 0) << first.errors;
  EXPECT_EQ(evaluate("--threads 3 --batch_tokens 100" + arguments).out, first.out);
  EXPECT_NE(evaluate("--context 8" + arguments).out, first.out);
  EXPECT_NE(evaluate("--dtype bf16" + arguments).out, first.out);
  if (!has_mpirun()) return;
  EXPECT_EQ(run_command(mpirun(3) + program("evaluate") + " --threads 1" + arguments).out, first.out);
}

TEST_F(EvaluateProgram, ColumnsAreThoseOfExamplesAlone) {
  const std::string named = directory_ / "named.jsonl", usual = directory_ / "usual.jsonl";
  write_text(named, R"({"question": "- Mia", "reply": " old fox"})");
  write_text(usual, R"({"prompt": "- Mia", "answer": " old fox"})");
  const std::vector<Json> expected = lines_of(evaluate("--json " + run_ + " " + text_ + " " + usual));
  const std::vector<Json> scores =
      lines_of(evaluate("--json --columns question:reply " + run_ + " " + named + " " + text_));
  ASSERT_EQ(scores.size(), 2U);
  EXPECT_EQ(scores[0]["tokens"], 8);
  EXPECT_EQ(scores[0]["loss"], expected.at(1)["loss"]);
  EXPECT_EQ(scores[1], expected.at(0)) << "a text has no columns";
  const std::vector<Json> alone = lines_of(evaluate("--json --columns reply " + run_ + " " + named));
  EXPECT_EQ(alone.at(0)["tokens"], 7) << "a column of texts, whose first token has no context";
}

TEST_F(EvaluateProgram, ConversationsAreWrittenByATemplate) {
  const std::string chat = directory_ / "chat.jsonl", of_chats = directory_ / "chats";
  write_text(chat,
             R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hm"}]})");
  const Outcome refused = evaluate(run_ + " " + chat);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.errors.find("but the tokenizer of " + run_ + " has no chat template"), std::string::npos)
      << refused.errors;
  const Outcome trained = run_command(
      program("train_gpt") + " data.dataset=" + chat + " data.tokenizer=" + golden_families +
      "smollm2 data.block_size=64 data.train_split=1 model.n_layer=1 model.n_head=1 model.n_embd=8 "
      "train.steps=1 train.batch_size=1 train.threads=1 log.dir=" +
      of_chats);
  ASSERT_EQ(trained.exit_code, 0) << trained.errors;
  const std::string arguments = "--json --tokens " + of_chats + " " + chat;
  const std::vector<Json> own = lines_of(evaluate(arguments));
  const std::vector<Json> plain = lines_of(evaluate("--chat-template chatml " + arguments));
  ASSERT_GE(own.size(), 3U);
  const Json &end = own[own.size() - 2], &score = own.back();
  EXPECT_EQ(end["token"], "<|im_end|>");
  EXPECT_EQ(score["tokens"], plain.back()["tokens"]);
  EXPECT_EQ(score["bytes"], 2) << "the end of the turn is a special token, which has none";
  EXPECT_NE(score["loss"], plain.back()["loss"]) << "chatml adds no system message";
}

TEST_F(EvaluateProgram, FilesBeforeOneThatFailsArePrinted) {
  const Outcome both = evaluate(run_ + " " + text_ + " " + (directory_ / "none.txt"));
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_EQ(both.out, evaluate(run_ + " " + text_).out);
  EXPECT_NE(both.out, "");
  EXPECT_NE(both.errors.find("none.txt: there is no such file"), std::string::npos) << both.errors;
}

TEST_F(EvaluateProgram, WhatCannotBeScoredIsNamed) {
  const auto refused = [](const std::string& arguments, const std::string& expected) {
    const Outcome outcome = evaluate(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_NE(outcome.first_error_line().find(expected), std::string::npos) << outcome.errors;
  };
  const auto file = [&](const std::string& name, const std::string& text) {
    write_text(directory_ / name, text);
    return run_ + " " + (directory_ / name);
  };
  refused(run_, "FILE is required");
  refused(run_ + " " + (directory_ / "none.txt"), "none.txt: there is no such file");
  refused((directory_ / "none ") + text_, "none does not exist");
  refused(file("one.txt", "T"), "one.txt has 1 token");
  refused(file("empty.txt", ""), "empty.txt is empty");
  refused(file("bytes.txt", "\xFF\xFF"), "bytes.txt is not text");
  refused(file("other.txt", "Tom $"), "other.txt has the character '$'");
  refused(file("keys.jsonl", "{\"prompt\": \"T\"}"), "keys.jsonl:1 has the key");
  refused(run_ + " " + text_ + " --context 17", "reads at most 16 tokens");
  refused(run_ + " " + text_ + " --context 1", "--context 1: the first token of a window does not count");
  refused(run_ + " " + text_ + " --device cuda", "--device cuda");

  const std::string folder = directory_ / "hf", vocabulary = "\"vocab\": {";
  ASSERT_EQ(run_command(program("convert") + " " + run_ + " " + folder).exit_code, 0);
  EXPECT_EQ(evaluate(folder + " " + text_).out, evaluate(run_ + " " + text_).out);
  std::string tokenizer = read_text(folder + "/tokenizer.json");
  std::filesystem::remove(folder + "/tokenizer.json");
  refused(folder + " " + text_, "has no tokenizer to read " + text_);
  const std::string symbols = std::to_string(Json::parse(tokenizer)["model"]["vocab"].size());
  tokenizer.insert(tokenizer.find(vocabulary) + vocabulary.size(), "\"~\": " + symbols + ",");
  write_text(folder + "/tokenizer.json", tokenizer);
  write_text(directory_ / "more.txt", "Tom~");
  refused(folder + " " + (directory_ / "more.txt"), "more.txt has a token with the id " + symbols);
}

}  // namespace
}  // namespace lockstep
