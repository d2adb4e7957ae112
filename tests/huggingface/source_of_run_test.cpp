// SPDX-License-Identifier: Apache-2.0
// A resumed run needs nothing of the model it began with.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "huggingface/load_gpt.h"
#include "huggingface/model_layout.h"
#include "tensor/create.h"
#include "tensor/ops.h"
#include "tests/support/tiny_training.h"
#include "tests/support/user_error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class SourceOfRun : public testing::TestWithParam<const char*> {
 protected:
  SourceOfRun() { std::ofstream(directory_ / "text") << sample_text(100); }

  /// Returns a run from scratch, into first/.
  Config first(const std::string& tokenizer) const {
    Config config = tiny_config(directory_, 2);
    config.data.dataset = directory_ / "text";
    config.data.tokenizer = tokenizer;
    config.model.vocab_multiple = 64;
    config.train.steps = config.train.decay_steps = 2;
    config.train.eval_every = -1;
    config.snapshot = SnapshotConfig{.path = directory_ / "first/snapshots", .every_steps = 4, .keep = 10};
    config.log.dir = directory_ / "first";
    return config;
  }

  /// Returns a run that begins with a model, into run/.
  Config next(const std::string& from) const {
    Config config = first("auto");
    config.model = ModelConfig{};
    config.model.from = from;
    config.train.steps = config.train.decay_steps = 10;
    config.snapshot.path = directory_ / "run/snapshots";
    config.log.dir = directory_ / "run";
    unset_model(config);
    return config;
  }

  /// Runs the training like train_gpt.
  RunResult run(const Config& settings, int ranks = 1) const {
    const QuietStderr quiet;
    run_ranks(ranks, [&](Communicator& communicator) {
      const World world(communicator.shared_from_this());
      Config config = settings;
      config.train.threads = 1;
      settle(config, world);
      const auto source = settle_model(config, world);
      const LanguageData data = language_data(config, world, source.get());
      const auto model = make_gpt(config, data.vocabulary_size);
      EXPECT_EQ(train(config, world, language_task(config, *model, data, source.get())), 0);
    });
    return read_result(settings.log.dir);
  }

  /// Leaves the state of a run that was killed after its eighth step.
  void cut_after_eighth_step() const { fs::remove_all(directory_ / "run/snapshots/step-00000010"); }

  TemporaryDirectory directory_;
};

INSTANTIATE_TEST_SUITE_P(Tokenizers, SourceOfRun,
                         testing::Values("char", LOCKSTEP_SOURCE_DIR "/tests/golden/tokenizers/llama3.json"),
                         [](const auto& one) { return one.param[0] == 'c' ? "Char" : "BytePairs"; });

/// "Through any crash" must hold even if the user removes or replaces the model's folder.
TEST_P(SourceOfRun, IsNotMissedWhereItIsGoneOrAnother) {
  run(first(GetParam()));
  const std::string from = directory_ / "from", other = directory_ / "other";
  convert_model(SourceModel(directory_ / "first", World::alone()), from, DType::f32);
  convert_model(SourceModel(from, World::alone()), other, DType::bf16);
  const Config config = next(from);
  const RunResult undisturbed = run(config);
  ASSERT_EQ(undisturbed.losses.size(), 10U);
  cut_after_eighth_step();
  expect_contains(user_error([&] { run(next(other)); }), {"model.from: ", "differs", "at step 8", "--fresh"});
  expect_contains(user_error([&] { run(next(directory_ / "nowhere")); }), {"model.from: ", "nowhere"});
  const std::string moved = directory_ / "moved";
  fs::rename(from, moved);
  EXPECT_EQ(run(config, 2), undisturbed) << "gone";
  cut_after_eighth_step();
  fs::rename(other, from);
  EXPECT_EQ(run(config), undisturbed) << "another";
  cut_after_eighth_step();
  EXPECT_EQ(run(next(moved)), undisturbed) << "the same model in another folder";
}

using SourceOfOneRun = SourceOfRun;

TEST_F(SourceOfOneRun, MayBeARunThatTrainsOn) {
  Config earlier = first("char");
  run(earlier);
  const Config config = next(earlier.log.dir);
  const RunResult undisturbed = run(config);
  cut_after_eighth_step();
  earlier.train.steps = 3;
  run(earlier);
  EXPECT_EQ(run(config), undisturbed);
}

/// The snapshot may vanish between two reads of it.
TEST_F(SourceOfOneRun, IsReadAfterAllByARunThatBeginsAgain) {
  run(first("char"));
  const std::string from = directory_ / "from";
  convert_model(SourceModel(directory_ / "first", World::alone()), from, DType::f32);
  Config config = next(from);
  run(config);
  cut_after_eighth_step();
  const auto source = settle_model(config, World::alone());
  EXPECT_TRUE(source->is_of_run());
  const SourceModel begun(from, World::alone());
  EXPECT_EQ(source->hash(), begun.hash());
  const auto loaded = load_gpt(*source), expected = load_gpt(begun);
  EXPECT_EQ(to_doubles(loaded->parameters()[1].tensor), to_doubles(expected->parameters()[1].tensor))
      << "not what the snapshot holds";
  fs::remove_all(from);
  convert_model(SourceModel(directory_ / "run", World::alone()), from, DType::f32);
  expect_contains(user_error([&] { load_gpt(*source); }), {"model.from: ", "has changed"});
}

/// The rows that model.vocab_multiple adds are not tokens for a run that begins with this model.
TEST_F(SourceOfOneRun, HasNoMoreTokensThanItsTextHad) {
  run(first("char"));
  Config config = next(directory_ / "first");
  const auto source = settle_model(config, World::alone());
  EXPECT_EQ(config.model.vocab_size, CharTokenizer(sample_text(100)).vocabulary_size());
  EXPECT_LT(config.model.vocab_size, 64);
  EXPECT_EQ(config.model.vocab_multiple, 64);
  const auto model = load_gpt(*source);
  EXPECT_EQ(model->options().vocabulary, config.model.vocab_size);
  EXPECT_EQ(model->options().rows, 64) << "rows beyond the vocabulary have a probability of zero";
}

}  // namespace
}  // namespace lockstep
