// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/evaluation.h"

#include <fstream>
#include <gtest/gtest.h>

#include "lockstep/data/corpus.h"
#include "lockstep/data/examples.h"
#include "lockstep/language/language_data.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tokenizer/char_tokenizer.h"
#include "lockstep/train/language_task.h"
#include "lockstep/writing/score_text.h"
#include "support/temporary_directory.h"
#include "support/user_error.h"

namespace lockstep {
namespace {

/// Returns the mean of the targets that count.
Tensor mean_target(const Tensor& targets) {
  double sum = 0.0, count = 0.0;
  for (const double target : to_doubles(targets)) {
    sum += target >= 0 ? target : 0.0;
    count += target >= 0 ? 1.0 : 0.0;
  }
  return from_values<float>({static_cast<float>(sum / count)}, {});
}

/// A task whose loss is the mean of the targets that count.
struct MeanTarget final : TrainingTask {
  std::vector<NamedTensor> parameters() const override { return {}; }
  std::shared_ptr<const Dataset> training_data() const override { return nullptr; }
  Tensor loss(const Tensor&, const Tensor& targets, const Context&) const override {
    return mean_target(targets);
  }
  std::unique_ptr<Optimizer> make_optimizer(ParameterSpace&) const override { return nullptr; }
};

// Blocks are weighted by their targets, for any division into batches.
TEST(Evaluation, IsTheMeanOverAllTargetsThatCount) {
  const ExampleBlocks blocks({{0, 10, 20, 30, 40, 50, 60, 70}}, {{1, 5, 6, 8}}, {.block_size = 4});
  ASSERT_EQ(blocks.size(), 2);
  ParameterSpace space({{"w", zeros({1}).set_requires_grad()}});
  DataParallel data_parallel(space, World::alone(), {.replicas = 1});
  const MeanTarget task;
  for (const int64_t batch_size : {1, 2, 3})
    EXPECT_NEAR(evaluate(World::alone(), data_parallel, task, blocks, batch_size, {}).value_or(0.0),
                (10.0 + 20 + 30 + 40 + 60 + 70) / 6, 1e-5)
        << "the mean of the blocks' means is 45";
}

/// The loss of a language model.
struct NextTokenLoss final : TrainingTask {
  explicit NextTokenLoss(const LanguageModel& of_model) : model(of_model) {}
  std::vector<NamedTensor> parameters() const override { return model.parameters(); }
  std::shared_ptr<const Dataset> training_data() const override { return nullptr; }
  Tensor loss(const Tensor& inputs, const Tensor& targets, const Context& context) const override {
    return model.loss(inputs, targets, context, 7);
  }
  std::unique_ptr<Optimizer> make_optimizer(ParameterSpace&) const override { return nullptr; }

  const LanguageModel& model;
};

// A loss is about 3. Training adds the losses of a batch in fp32, and a score adds all in double.
TEST(Evaluation, IsTheScoreOfTheSameWindows) {
  constexpr int64_t block = 16;
  const std::string lines = sample_text(40);
  const CharTokenizer tokenizer(lines);
  const Tokens tokens = tokenizer.encode(lines);
  Job job;
  job.text.block_size = block;
  job.model.n_layer = 1;
  job.model.n_embd = 16;
  job.model.dropout = 0.5;
  const std::unique_ptr<LanguageModel> model = make_model(job, tokenizer.vocabulary_size());
  ParameterSpace space(model->parameters());
  DataParallel data_parallel(space, World::alone(), {.replicas = 1});
  std::vector<int64_t> windows, examples;
  for (int64_t begin = 0; begin < tokens.size(); begin += block)
    windows.insert(windows.end(), {begin, std::min(begin + block, tokens.size())});
  for (int64_t begin = 0, i = 0; begin + block <= tokens.size(); ++i, begin += 9 + i % 8)
    examples.insert(examples.end(), {begin + i % 5, begin + 9 + (i + 1) % 8});
  for (const bool are_examples : {false, true}) {
    const ExampleBlocks blocks(tokens, are_examples ? examples : windows,
                               {.block_size = block, .packs = false});
    const double loss =
        evaluate(World::alone(), data_parallel, NextTokenLoss(*model), blocks, 5, {}).value_or(0.0);
    EncodedText text{.name = "lines", .tokens = tokens, .examples = {}};
    if (are_examples) text.examples = Marks(examples);
    const TextScore score = score_text(World::alone(), *model, tokenizer, text);
    EXPECT_NEAR(score.loss(), loss, 1e-6);
    int64_t weight = 0;
    for (int64_t i = 0; i < blocks.size(); ++i) weight += blocks.counted_targets(i).value_or(0);
    EXPECT_EQ(score.tokens, weight);
  }
}

TEST(ExampleData, IsReadSplitAndDescribed) {
  const TemporaryDirectory directory;
  Job job;
  const std::string path = directory / "x.jsonl";
  job.text.dataset = path;
  job.text.block_size = 4;
  job.text.train_split = 0.5;
  job.compute.threads = 1;
  write_text(path, "{\"prompt\": \"ab\", \"answer\": \"cab\"}\n{\"text\": \"abc\"}\n");
  const LanguageData data = language_data(job, World::alone(), nullptr);
  EXPECT_EQ(data.vocabulary_size, 3);
  EXPECT_EQ(data.training->counted_targets(0), 3);
  EXPECT_EQ(data.validation->counted_targets(0), 2);
  expect_contains(data.description, {"2 examples from " + path, "3 symbols", "2 blocks", "loss on answers",
                                     "attend to those before them"});
  job.text.loss_on = LossOn::all;
  job.text.packing = false;
  const LanguageData all = language_data(job, World::alone(), nullptr);
  EXPECT_EQ(all.training->counted_targets(0), 4);
  EXPECT_EQ(all.description.find("attend"), std::string::npos);
  EXPECT_EQ(all.text_hash, data.text_hash);
  job.text.block_size = 3;
  testing::internal::CaptureStderr();
  language_data(job, World::alone(), nullptr);
  expect_contains(testing::internal::GetCapturedStderr(),
                  {"1 example longer than data.block_size = 3 is cut"});
  write_text(path, "{\"prompt\": \"ab\"}\n");
  expect_contains(user_error([&] { language_data(job, World::alone(), nullptr); }),
                  {path + ":1 has the key \"prompt\": an example has"});
}

}  // namespace
}  // namespace lockstep
