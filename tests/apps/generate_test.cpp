// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/program.h"

namespace lockstep {
namespace {

/// Tests of `generate` with a model that was trained for a few steps.
class GenerateProgram : public testing::Test {
 protected:
  void SetUp() override {
    const Outcome trained =
        run_command(program("train_gpt") +
                    " data.dataset=sample data.block_size=16 model.n_layer=2 model.n_head=2 model.n_embd=16 "
                    "train.steps=20 train.batch_size=2 train.threads=1 train.eval_every=0 log.dir=" +
                    (directory_ / "run"));
    ASSERT_EQ(trained.exit_code, 0) << trained.errors;
  }

  Outcome generate(const std::string& options) const {
    return run_command(program("generate") + " --snapshot " + (directory_ / "run") + " " + options);
  }
  std::string input(const std::string& lines) const {
    write_text(directory_ / "in.jsonl", lines);
    return "--input " + (directory_ / "in.jsonl") + " ";
  }

  TemporaryDirectory directory_;
};

TEST_F(GenerateProgram, AnswersLinesInTheirOrderWithTheSameTextsInAnyBatch) {
  std::string lines;
  for (int i = 0; i < 7; ++i)
    lines += "{\"id\": " + std::to_string(i) + ", \"prompt\": \"" +
             std::string("- Bob saw").substr(0, 1 + i) +
             "\", \"max_new_tokens\": " + std::to_string(40 - 5 * i) + "}\n";
  const std::string options = input(lines) + "--top_k 20 --top-p 0.95 --repetition_penalty 1.1 --seed 3 ";
  const Outcome first = generate(options + "--batch-size 1 --threads 1");
  ASSERT_EQ(first.exit_code, 0) << first.errors;
  std::istringstream answers(first.out);
  int count = 0;
  for (std::string line; std::getline(answers, line); ++count) {
    const auto answer = nlohmann::json::parse(line);
    EXPECT_EQ(answer["id"], count);
    EXPECT_EQ(answer["tokens"].size(), static_cast<size_t>(40 - 5 * count));
    EXPECT_EQ(answer["finish_reason"], "length");
  }
  EXPECT_EQ(count, 7);
  EXPECT_EQ(generate(options + "--batch_size 3 --threads 2").out, first.out);
  const std::string output = directory_ / "out.jsonl";
  EXPECT_EQ(generate(options + "--batch-size 20 --output " + output).out, "");
  EXPECT_EQ(read_text(output), first.out);
  std::filesystem::create_symlink("/dev/fd/1", directory_ / "terminal");
  EXPECT_EQ(generate(options + "--output " + (directory_ / "terminal")).out, first.out);

  // The first line equals the text of the prompt alone. Both have the same seed and the first position.
  const auto alone = nlohmann::json::parse(first.out.substr(0, first.out.find('\n')));
  const Outcome terminal = generate(
      "--prompt=- --top-k 20 --top_p 0.95 --repetition-penalty 1.1 --seed 3 "
      "--max_new_tokens 40");
  EXPECT_EQ(terminal.out, "-" + alone["text"].get<std::string>() + "\n") << terminal.errors;
  const Outcome stopped = generate("--prompt=- --seed 3 --tokens 40 --stop ' '");
  EXPECT_EQ(stopped.out.find(' '), std::string::npos) << stopped.out;
  EXPECT_NE(generate("--prompt=- --seed 3 --tokens 40 --stop '[ ]' --stop xxx").out.find(' '),
            std::string::npos)
      << "a text in brackets is not a list";
}

TEST_F(GenerateProgram, BadInputIsNamedByLineAndKey) {
  const auto refused = [&](const std::string& options, const std::string& expected) {
    const Outcome outcome = generate(options);
    EXPECT_EQ(outcome.exit_code, 2) << options;
    EXPECT_EQ(outcome.out, "") << options;
    EXPECT_NE(outcome.first_error_line().find(expected), std::string::npos) << outcome.errors;
  };
  refused(input("{\"prompt\": \"-\"}\n{\"prompt\": \"-\", \"top_p\": 2}\n"), "in.jsonl, line 2: top_p is 2");
  refused(input("{\"prompt\": \"\xC3\xA9\"}\n"), "in.jsonl, line 1: prompt has the character");
  refused("--input " + (directory_ / "none.jsonl"), "none.jsonl does not exist");
  refused("--input " + directory_.path(), directory_.path() + " cannot be read");
  refused("--top-p 0", "top_p is 0");
  refused("--prompt \xC3\xA9", "--prompt has the character");
  refused("--stop ''", "--stop: the text must not be empty");
  refused("--output " + (directory_ / "out"), "--output needs --input");
}

}  // namespace
}  // namespace lockstep
