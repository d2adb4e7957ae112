// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/program.h"
#include "tests/support/sample_corpus.h"

namespace lockstep {
namespace {

TEST(Learning, ASmallGptComesWithinFivePercentOfTheEntropyOfTheSample) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "takes minutes under a sanitizer, and runs nothing that other tests do not";
#endif
  const TemporaryDirectory directory;
  const std::string command =
      program("train_gpt") +
      " data.dataset=sample data.block_size=32 model.n_layer=2 model.n_head=2 model.n_embd=64 "
      "model.bias=false "
      "train.steps=2000 train.batch_size=6 train.learning_rate=5e-3 train.min_lr=2e-4 train.warmup_steps=100 "
      "train.eval_every=0 train.threads=1 dist.replicas=4 log.every_steps=1000 log.dir=" +
      (directory / "run");
  const Outcome outcome = run_command(command, 280);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;

  double validation_loss = 0.0;
  std::ifstream metrics(directory / "run/metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) {
    const auto object = nlohmann::json::parse(line);
    if (object.contains("val_loss")) validation_loss = object["val_loss"];
  }
  // Windows of 32 characters are whole lines, so the entropy is the least loss that any model can reach.
  EXPECT_GE(validation_loss, 0.99 * SampleCorpus::entropy_per_character) << "better than possible";
  EXPECT_LE(validation_loss, 1.05 * SampleCorpus::entropy_per_character);
  EXPECT_LE(validation_loss, 0.80 * SampleCorpus::best_bigram_loss);
}

}  // namespace
}  // namespace lockstep
