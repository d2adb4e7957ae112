// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "language/language_data.h"
#include "nn/initial_values.h"
#include "support/golden.h"
#include "support/tiny_training.h"

namespace lockstep {
namespace {

/// Compares a run with PyTorch, from a JSONL file to the loss of the tenth step.
TEST(FineTuning, TenStepsAgreeWithPyTorch) {
  const Golden golden("fine_tuning");
  const TemporaryDirectory directory;
  Config config = tiny_config(directory, 1);
  std::string text;
  for (const double byte : to_doubles(golden.stored("jsonl"))) text += static_cast<char>(byte);
  config.data.dataset = directory / "examples.jsonl";
  write_text(config.data.dataset, text);
  const double examples = item(golden.stored("examples"));
  config.data.train_split = (examples - 0.5) / examples;
  config.data.block_size = 13;
  config.model.n_layer = 2;
  config.model.n_head = 3;
  config.model.n_embd = 24;
  config.model.dropout = 0.0;
  config.train.steps = 10;
  config.train.learning_rate = 1e-3;
  config.train.min_lr = 1e-4;
  config.train.schedule = "wsd";
  config.train.warmup_steps = 2;
  config.train.cooldown_steps = 3;
  config.train.beta2 = 0.95;
  config.train.weight_decay = 0.1;
  config.train.grad_clip = 2.0;
  config.train.eval_every = -1;
  config.train.freeze = "transformer.wpe.*, *.h.0.attn.*, *.ln_f.bias";
  config.train.groups = "*.h.1.* lr_factor=0.5 weight_decay=0.02, *.bias lr_factor=2";

  const World world = World::alone();
  const QuietStderr quiet;
  settle(config, world);
  const LanguageData data = load_language_data(config, world);
  ASSERT_EQ(data.training->size(), 20);
  std::vector<int32_t> input(13), target(13);
  for (int64_t block = 0; block < 20; ++block) {
    data.training->fetch(block, input.data(), target.data());
    for (const auto& [name, ids] : {std::pair("inputs", &input), std::pair("targets", &target)}) {
      const Tensor wanted = golden.stored(name).reshape({20, 13}).slice(block, block + 1);
      EXPECT_EQ(std::vector<double>(ids->begin(), ids->end()), to_doubles(wanted)) << name << " " << block;
    }
  }
  const auto model = make_gpt(config, data.vocabulary_size);
  for (const NamedTensor& parameter : model->parameters()) {
    const Tensor values = golden.tensor("initial." + parameter.name, DType::f32);
    copy(is_in_out(parameter.name) ? transpose(values) : values, parameter.tensor);
  }
  TrainingTask task = language_task(config, *model, data);
  task.shuffle = false;
  EXPECT_EQ(train(config, world, task), 0);
  const std::vector<double> losses = read_result(config.log.dir).losses,
                            wanted = to_doubles(golden.stored("losses"));
  ASSERT_EQ(losses.size(), 10U);
  for (size_t step = 0; step < 10; ++step) EXPECT_NEAR(losses[step], wanted[step], 1e-5) << step;
}

}  // namespace
}  // namespace lockstep
