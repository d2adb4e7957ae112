// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lockstep/language/language_data.h"
#include "lockstep/models/gpt2/initial_weights.h"
#include "support/golden.h"
#include "support/tiny_training.h"

namespace lockstep {
namespace {

/// Compares a run with PyTorch, from a JSONL file to the loss of the tenth step.
TEST(FineTuning, TenStepsAgreeWithPyTorch) {
  const Golden golden("fine_tuning");
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 1);
  std::string text;
  for (const double byte : to_doubles(golden.stored("jsonl"))) text += static_cast<char>(byte);
  const std::string path = directory / "examples.jsonl";
  job.text.dataset = path;
  write_text(path, text);
  const double examples = item(golden.stored("examples"));
  job.text.train_split = (examples - 0.5) / examples;
  job.text.block_size = 13;
  job.model.n_layer = 2;
  job.model.n_head = 3;
  job.model.n_embd = 24;
  job.model.dropout = 0.0;
  job.length.steps = 10;
  job.schedule.learning_rate = 1e-3;
  job.schedule.min_lr = 1e-4;
  job.schedule.schedule = Schedule::wsd;
  job.schedule.warmup_steps = 2;
  job.schedule.cooldown_steps = 3;
  job.optimizer.beta2 = 0.95;
  job.optimizer.weight_decay = 0.1;
  job.optimizer.grad_clip = 2.0;
  job.validation.eval_every = -1;
  job.optimizer.freeze = "transformer.wpe.*, *.h.0.attn.*, *.ln_f.bias";
  job.optimizer.groups = "*.h.1.* lr_factor=0.5 weight_decay=0.02, *.bias lr_factor=2";

  const World world = World::alone();
  const QuietStderr quiet;
  job = resolve(job, world);
  const LanguageData data = language_data(job, world, nullptr);
  ASSERT_EQ(data.training->size(), 20);
  std::vector<int32_t> input(13), target(13);
  for (int64_t block = 0; block < 20; ++block) {
    data.training->fetch(block, input.data(), target.data());
    for (const auto& [name, ids] : {std::pair("inputs", &input), std::pair("targets", &target)}) {
      const Tensor wanted = golden.stored(name).reshape({20, 13}).slice(block, block + 1);
      EXPECT_EQ(std::vector<double>(ids->begin(), ids->end()), to_doubles(wanted)) << name << " " << block;
    }
  }
  const auto model = make_model(job, data.vocabulary_size);
  for (const NamedTensor& parameter : model->parameters()) {
    const Tensor values = golden.tensor("initial." + parameter.name, DType::f32);
    copy(is_in_out(parameter.name) ? transpose(values) : values, parameter.tensor);
  }
  const LanguageTask original(job, *model, data);
  AlteredTask task(original);
  task.given.shuffle = false;
  EXPECT_EQ(train(job, world, task), 0);
  const std::vector<double> losses = read_result(job.log.dir).losses,
                            wanted = to_doubles(golden.stored("losses"));
  ASSERT_EQ(losses.size(), 10U);
  for (size_t step = 0; step < 10; ++step) EXPECT_NEAR(losses[step], wanted[step], 1e-5) << step;
}

}  // namespace
}  // namespace lockstep
