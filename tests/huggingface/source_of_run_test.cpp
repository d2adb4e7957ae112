// SPDX-License-Identifier: Apache-2.0
// A resumed run needs nothing of the model it began with.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "lockstep/huggingface/model_layout.h"
#include "lockstep/huggingface/source_model.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"
#include "tests/support/tiny_training.h"
#include "tests/support/user_error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class SourceOfRun : public testing::TestWithParam<const char*> {
 protected:
  SourceOfRun() { std::ofstream(directory_ / "text") << sample_text(100); }

  /// Returns a run from scratch, into first/.
  Job first(const std::variant<NamedTokenizer, std::string>& tokenizer) const {
    Job job = tiny_config(directory_, 2);
    job.text.dataset = directory_ / "text";
    job.text.tokenizer = tokenizer;
    job.model.vocab_multiple = 64;
    job.length.steps = job.schedule.decay_steps = 2;
    job.validation.eval_every = -1;
    job.snapshots = SnapshotOptions{.path = directory_ / "first/snapshots", .every_steps = 4, .keep = 10};
    job.log.dir = directory_ / "first";
    return job;
  }

  /// Returns a run that begins with a model, into run/.
  Job next(const std::string& from) const {
    Job job = first(NamedTokenizer::of_model);
    job.model = ModelOptions{};
    job.model.from = from;
    job.length.steps = job.schedule.decay_steps = 10;
    job.snapshots.path = directory_ / "run/snapshots";
    job.log.dir = directory_ / "run";
    return job;
  }

  /// Runs the training like train_gpt.
  RunResult run(const Job& settings, int ranks = 1) const {
    const QuietStderr quiet;
    run_ranks(ranks, [&](Communicator& communicator) {
      const World world(communicator.shared_from_this());
      Job job = settings;
      job.compute.threads = 1;
      job = resolve(job, world);
      const auto source = take_source(job, world);
      const LanguageData data = language_data(job, world, source.get());
      const auto model = make_model(job, data.vocabulary_size);
      EXPECT_EQ(train(job, world, LanguageTask(job, *model, data, source.get())), 0);
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
  const Job job = next(from);
  const RunResult undisturbed = run(job);
  ASSERT_EQ(undisturbed.losses.size(), 10U);
  cut_after_eighth_step();
  expect_contains(user_error([&] { run(next(other)); }), {"model.from: ", "differs", "at step 8", "--fresh"});
  expect_contains(user_error([&] { run(next(directory_ / "nowhere")); }), {"model.from: ", "nowhere"});
  const std::string moved = directory_ / "moved";
  fs::rename(from, moved);
  EXPECT_EQ(run(job, 2), undisturbed) << "gone";
  cut_after_eighth_step();
  fs::rename(other, from);
  EXPECT_EQ(run(job), undisturbed) << "another";
  cut_after_eighth_step();
  EXPECT_EQ(run(next(moved)), undisturbed) << "the same model in another folder";
}

using SourceOfOneRun = SourceOfRun;

TEST_F(SourceOfOneRun, MayBeARunThatTrainsOn) {
  Job earlier = first(NamedTokenizer::characters);
  run(earlier);
  const Job job = next(earlier.log.dir);
  const RunResult undisturbed = run(job);
  cut_after_eighth_step();
  earlier.length.steps = 3;
  run(earlier);
  EXPECT_EQ(run(job), undisturbed);
}

/// The snapshot may vanish between two reads of it.
TEST_F(SourceOfOneRun, IsReadAfterAllByARunThatBeginsAgain) {
  run(first(NamedTokenizer::characters));
  const std::string from = directory_ / "from";
  convert_model(SourceModel(directory_ / "first", World::alone()), from, DType::f32);
  Job job = next(from);
  run(job);
  cut_after_eighth_step();
  const auto source = take_source(job, World::alone());
  EXPECT_TRUE(source->is_of_run());
  const SourceModel begun(from, World::alone());
  EXPECT_EQ(source->hash(), begun.hash());
  const auto loaded = load_model(*source), expected = load_model(begun);
  EXPECT_EQ(to_doubles(loaded->parameters()[1].tensor), to_doubles(expected->parameters()[1].tensor))
      << "not what the snapshot holds";
  fs::remove_all(from);
  convert_model(SourceModel(directory_ / "run", World::alone()), from, DType::f32);
  expect_contains(user_error([&] { load_model(*source); }), {"model.from: ", "has changed"});
}

/// The rows that model.vocab_multiple adds are not tokens for a run that begins with this model.
TEST_F(SourceOfOneRun, HasNoMoreTokensThanItsTextHad) {
  run(first(NamedTokenizer::characters));
  Job job = next(directory_ / "first");
  const auto source = take_source(job, World::alone());
  EXPECT_EQ(job.model.vocab_size, CharTokenizer(sample_text(100)).vocabulary_size());
  EXPECT_LT(job.model.vocab_size, 64);
  EXPECT_EQ(job.model.vocab_multiple, 64);
  const auto model = load_model(*source);
  EXPECT_EQ(model->vocabulary(), job.model.vocab_size);
  EXPECT_EQ(table_rows(job.model), 64) << "rows beyond the vocabulary have a probability of zero";
}

}  // namespace
}  // namespace lockstep
