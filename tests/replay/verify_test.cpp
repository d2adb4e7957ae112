// SPDX-License-Identifier: Apache-2.0
#include "lockstep/replay/verify.h"

#include <gtest/gtest.h>

#include "lockstep/core/text.h"
#include "lockstep/replay/replayed_run.h"
#include "lockstep/snapshot/snapshot_store.h"
#include "support/held_tensors.h"
#include "tests/replay/replay_support.h"

namespace lockstep {
namespace {

/// The tensors of a run in which one bit is flipped.
class FlippedTensors final : public PlacedTensors {
 public:
  FlippedTensors(const PlacedTensors& of, size_t buffer, int64_t element)
      : of_(of), buffer_(buffer), element_(element) {
    tensors_ = of.tensors();
    buffers_ = of.buffers();
  }
  void get(size_t buffer, Range range, std::byte* to) const override {
    of_.get(buffer, range, to);
    if (buffer == buffer_ && range.begin <= element_ && element_ < range.end)
      to[4 * (element_ - range.begin)] ^= std::byte{1};
  }
  void set(size_t, Range, const std::byte*) override {}

 private:
  const PlacedTensors& of_;
  size_t buffer_;
  int64_t element_;
};

class Verify : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new TemporaryDirectory();
    train_tiny(*shared_ / "run");
  }
  static void TearDownTestSuite() { delete std::exchange(shared_, nullptr); }

  /// Returns a copy of the run that a test may change.
  std::string copy() const {
    const std::string folder = own_ / "copy";
    std::filesystem::remove_all(folder);
    std::filesystem::copy(*shared_ / "run", folder, std::filesystem::copy_options::recursive);
    return folder;
  }

  static Outcome verify(const std::string& arguments) { return run_program_named("verify", arguments); }

  static void expect_fails(const std::string& folder, int64_t step, const std::string& problem) {
    const Outcome outcome = verify(folder);
    EXPECT_EQ(outcome.exit_code, 1) << outcome.out << outcome.errors;
    EXPECT_NE(outcome.out.find(concat(", step ", step, " does not hold: ")), std::string::npos)
        << outcome.out;
    EXPECT_NE(outcome.out.find(problem), std::string::npos) << outcome.out;
  }

  /// Changes a number in the line of a step.
  static void change_line(const std::string& folder, int64_t step, const std::string& field,
                          const std::string& value) {
    const std::string path = folder + "/metrics.jsonl";
    std::string text = read_text(path);
    const size_t line = text.find(concat("{\"step\":", step, ",")),
                 at = text.find("\"" + field + "\":", line);
    const size_t begin = at + field.size() + 3, end = text.find_first_of(",}", begin);
    write_text(path, text.replace(begin, end - begin, value));
  }

  /// Writes the snapshot of a step again, with other contents and right checksums.
  static void forge_snapshot(const std::string& folder, int64_t step, size_t buffer, int64_t element,
                             const std::function<void(Snapshot&)>& change = {},
                             const std::optional<ModelLayout>& layout = {}) {
    const RecordedRun run = read_run(folder);
    const World world = World::alone();
    const auto tasks = open_tasks(run, {}, world);
    ReplayedRun replayed(run, *tasks, world);
    const auto found = run.snapshot_before(step);
    ASSERT_TRUE(found && found->state().step == step);
    replayed.load(*found);
    Snapshot snapshot = found->state();
    if (change) change(snapshot);
    std::filesystem::remove_all(concat(folder, "/snapshots/step-", zero_padded(step, 8)));
    SnapshotStore store(folder + "/snapshots", 9);
    save_snapshot(store, snapshot, FlippedTensors(replayed.tensors(), buffer, element),
                  SnapshotStore::Kind::step, layout ? *layout : replayed.task().layout());
  }

  const TemporaryDirectory own_;

 private:
  static TemporaryDirectory* shared_;
};
TemporaryDirectory* Verify::shared_ = nullptr;

TEST_F(Verify, AcceptsEveryHonestInterval) {
  const std::string folder = copy();
  const Outcome all = verify(folder);
  EXPECT_EQ(all.exit_code, 0) << all.out << all.errors;
  EXPECT_NE(
      all.out.find("steps 1 to 12 hold, computed again from the initial values; so do 4 snapshots and 2 "
                   "validations\nthe chain of hashes in its snapshots ends in "),
      std::string::npos)
      << all.out;
  const RecordedRun run = read_run(folder);
  const World world = World::alone();
  const auto tasks = open_tasks(run, {}, world);
  for (const auto& [first, last] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {4, 5}, {5, 8}, {12, 12}}) {
    const Verification result = verify_steps(run, *tasks, world, {first, last});
    EXPECT_TRUE(result.holds()) << result.problem;
    EXPECT_EQ(result.began_at, (first - 1) / 4 * 4);
  }
}

TEST_F(Verify, AcceptsARunThatWasInterrupted) {
  const std::string folder = own_ / "run";
  train_tiny(folder, "train.steps=6 train.decay_steps=12");
  train_tiny(folder, "train.decay_steps=12", "LOCKSTEP_TEST_PLANT=nothing", program("planted/train_gpt"));
  const Outcome outcome = verify(folder);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.errors;
  const auto snapshot = read_run(folder).snapshot_before(12);
  ASSERT_TRUE(snapshot.has_value());
  const RunChain& chain = snapshot->state().chain;
  ASSERT_EQ(chain.origins.size(), 2U);
  EXPECT_EQ(chain.origins[1].step, 6);
  EXPECT_NE(chain.origins[0].build, chain.origins[1].build);
}

TEST_F(Verify, NamesTheStepOfAChangedLine) {
  for (const auto& [field, value, problem] :
       std::vector<std::array<std::string, 3>>{{"loss_bits", "\"40000000\"", "but metrics.jsonl has"},
                                               {"loss", "1.5", "but metrics.jsonl has 1.5"},
                                               {"grad_norm", "0.25", "the gradient norm is"},
                                               {"lr", "0.5", "the learning rate is"}}) {
    SCOPED_TRACE(field);
    const std::string folder = copy();
    change_line(folder, 7, field, value);
    expect_fails(folder, 7, problem);
  }
  const std::string folder = copy();
  change_line(folder, 6, "val_loss_bits", "\"40000000\"");
  expect_fails(folder, 6, "the validation loss is ");
  change_line(folder, 6, "val_loss", "1.0");
  expect_fails(folder, 6, "the validation loss is ");
}

TEST_F(Verify, NamesTheStepOfAMissingLine) {
  const std::string folder = copy(), path = folder + "/metrics.jsonl";
  std::string text = read_text(path);
  const size_t begin = text.find("{\"step\":9,");
  write_text(path, text.erase(begin, text.find('\n', begin) + 1 - begin));
  expect_fails(folder, 9, "metrics.jsonl has no line of the step");
}

TEST_F(Verify, NamesAnotherHashOfTheParameters) {
  const std::string folder = copy();
  const std::string hash = read_run(folder).parameters_hash;
  replace_in_file(folder + "/metrics.jsonl", hash, "0123456789abcdef");
  expect_fails(folder, 12, "the last line of metrics.jsonl has 0123456789abcdef");
}

TEST_F(Verify, NamesAForgedSnapshot) {
  std::string folder = copy();
  forge_snapshot(folder, 8, 0, 5);
  expect_fails(folder, 8, "the snapshot differs: transformer.");
  folder = copy();
  forge_snapshot(folder, 4, 2, 5);
  expect_fails(folder, 4, ".exp_avg_sq");
  folder = copy();
  const auto nothing = int64_t{1} << 40;
  forge_snapshot(folder, 4, 0, nothing, [](Snapshot& snapshot) { snapshot.optimizer_steps = 5; });
  expect_fails(folder, 4, "the optimizer made 4 updates, and 5 in ");
}

TEST_F(Verify, NamesAForgedChain) {
  std::string folder = copy();
  const auto nothing = int64_t{1} << 40;
  forge_snapshot(folder, 8, 0, nothing, [](Snapshot& snapshot) { snapshot.chain.link = "0123456789abcdef"; });
  expect_fails(folder, 8, "ends in 0123456789abcdef");
  folder = copy();
  forge_snapshot(folder, 12, 0, nothing,
                 [](Snapshot& snapshot) { snapshot.chain.origins[0].build = "mine"; });
  expect_fails(folder, 12, "the chain of hashes in ");
}

TEST_F(Verify, NamesOtherFilesOfTheModel) {
  std::string folder = copy();
  const auto nothing = int64_t{1} << 40;
  forge_snapshot(folder, 8, 0, nothing, {}, ModelLayout{});
  expect_fails(folder, 8, "config.json is missing");
  folder = copy();
  ModelLayout layout;
  layout.texts["config.json"] = "{}";
  forge_snapshot(folder, 12, 0, nothing, {}, layout);
  expect_fails(folder, 12, "config.json has another text than this program writes");
}

TEST_F(Verify, NamesASnapshotThatNoStepComputes) {
  for (const char* name : {"step-00000025", "best"}) {
    const std::string folder = copy(), path = folder + "/snapshots/" + name;
    std::filesystem::remove_all(path);
    forge_snapshot(folder, 12, 0, 5);
    std::filesystem::rename(folder + "/snapshots/step-00000012", path);
    const Outcome outcome = verify(folder);
    EXPECT_EQ(outcome.exit_code, 1) << name << outcome.out << outcome.errors;
  }
  // A link is followed by whatever reads the best snapshot.
  const std::string folder = copy();
  std::filesystem::remove_all(folder + "/snapshots/best");
  std::filesystem::copy(folder + "/snapshots/step-00000004", own_ / "elsewhere");
  write_text(own_ / "elsewhere/state.json", "{}");
  std::filesystem::create_directory_symlink(own_ / "elsewhere", folder + "/snapshots/best");
  EXPECT_EQ(verify(folder).exit_code, 1);
}

TEST_F(Verify, NamesLinesThatAreNoSteps) {
  for (const std::string line : {"{\"step\":3,\"loss\":1}\n", "{}\n", "garbage\n"}) {
    const std::string folder = copy(), path = folder + "/metrics.jsonl";
    std::string text = read_text(path);
    write_text(path, text.insert(text.find("{\"step\":6,"), line));
    expect_fails(folder, 5, "the line after it in metrics.jsonl");
  }
  const std::string folder = copy();
  const std::string text = read_text(folder + "/metrics.jsonl");
  write_text(folder + "/metrics.jsonl", text + text.substr(0, text.find('\n') + 1));
  expect_fails(folder, 12, "the line after it in metrics.jsonl");
}

TEST_F(Verify, NamesForgedSettingsAndData) {
  std::string folder = copy();
  replace_in_file(folder + "/config.ini", "seed = 1337", "seed = 1338");
  Outcome outcome = verify(folder);
  EXPECT_EQ(outcome.exit_code, 1) << outcome.errors;
  EXPECT_NE(outcome.out.find("config.ini differs from the settings in "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("train.seed = 1337 there, 1338 here"), std::string::npos) << outcome.out;
  folder = copy();
  replace_in_file(folder + "/data.hash", read_run(folder).data.at("corpus"), "0123456789abcdef");
  outcome = verify(folder);
  EXPECT_EQ(outcome.exit_code, 1) << outcome.errors;
  EXPECT_NE(outcome.out.find("data.hash differs from the data in "), std::string::npos) << outcome.out;
}

TEST_F(Verify, NamesADamagedSnapshot) {
  const std::string folder = copy();
  const std::string path = folder + "/snapshots/step-00000008/model.safetensors";
  std::string bytes = read_text(path);
  bytes[bytes.size() - 9] = static_cast<char>(bytes[bytes.size() - 9] ^ 1);
  write_text(path, bytes);
  expect_fails(folder, 8, "step-00000008");
}

TEST_F(Verify, NamesAForgedBestSnapshot) {
  const std::string folder = copy();
  std::filesystem::remove_all(folder + "/snapshots/best");
  std::filesystem::copy(folder + "/snapshots/step-00000004", folder + "/snapshots/best");
  // It is a snapshot of its step, so it holds.
  EXPECT_EQ(verify(folder).exit_code, 0);
  write_text(folder + "/snapshots/best/state.json", "{}");
  EXPECT_EQ(verify(folder).exit_code, 1);
}

TEST_F(Verify, RefusesStepsThatTheRunHasNot) {
  const std::string folder = copy();
  for (const std::string arguments : {"--from 13", "--to 13", "--from 9 --to 4"}) {
    const Outcome outcome = verify(folder + " " + arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_EQ(outcome.errors.find('\n'), outcome.errors.size() - 1) << outcome.errors;
  }
  EXPECT_EQ(verify(own_.path()).exit_code, 2);
}

}  // namespace
}  // namespace lockstep
