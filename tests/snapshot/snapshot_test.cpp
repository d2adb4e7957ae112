// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/core/hash.h"
#include "lockstep/snapshot/snapshot_store.h"
#include "lockstep/tensor/create.h"
#include "tests/support/config_support.h"
#include "tests/support/held_tensors.h"
#include "tests/support/load_snapshot.h"
#include "tests/support/temporary_directory.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

Snapshot example(int64_t step) {
  return {
      .step = step,
      .optimizer_steps = step - 1,
      .is_finished = false,
      .best_validation_loss = 0.1 + static_cast<double>(step),
      .configuration = "[train]\nsteps = 10\n",
      .artifacts = {{"vocabulary", "\n aé"}},
      .matmul_plans = "a GPU\na plan\n",
      .scope = "a GPU, arithmetic 7",
      .chain = {.link = "0123456789abcdef", .origins = {{0, "a build", "a GPU"}, {2, "another", "a CPU"}}}};
}

/// Writes a snapshot by one rank. Its numbers begin at the step.
void save_example(SnapshotStore& store, const Snapshot& snapshot,
                  SnapshotStore::Kind kind = SnapshotStore::Kind::step) {
  HeldTensors tensors({{"a", {3, 5}}, {"b.weight", {7}}}, {"exp_avg"});
  tensors.count(0, static_cast<double>(snapshot.step));
  save_snapshot(store, snapshot, tensors, kind);
}
void save_best_example(SnapshotStore& store, const Snapshot& snapshot) {
  save_example(store, snapshot, SnapshotStore::Kind::best);
}

void expect_equal(const LoadedSnapshot& a, const Snapshot& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.optimizer_steps, b.optimizer_steps);
  EXPECT_EQ(a.is_finished, b.is_finished);
  EXPECT_EQ(a.best_validation_loss, b.best_validation_loss);
  EXPECT_EQ(a.grad_scale, b.grad_scale);
  EXPECT_EQ(a.configuration, b.configuration);
  EXPECT_EQ(a.artifacts, b.artifacts);
  EXPECT_EQ(a.matmul_plans, b.matmul_plans);
  EXPECT_EQ(a.scope, b.scope);
  EXPECT_EQ(a.chain, b.chain);
  ASSERT_EQ(a.model.size(), 2u);
  ASSERT_EQ(a.optimizer.size(), 2u);
  EXPECT_EQ(a.model[1].name, "b.weight");
  EXPECT_EQ(a.optimizer[1].name, "b.weight.exp_avg");
  EXPECT_EQ(a.model[0].tensor.shape(), (Shape{3, 5}));
  EXPECT_EQ(to_doubles(a.model[0].tensor)[14], 14.0 + static_cast<double>(b.step));
  EXPECT_EQ(to_doubles(a.model[1].tensor)[6], 22.0 + static_cast<double>(b.step));
  EXPECT_EQ(to_doubles(a.optimizer[1].tensor)[6], 1e6 + 22.0 + static_cast<double>(b.step));
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Snapshot, ComesBackAsItWas) {
  for (bool has_best : {true, false}) {
    const TemporaryDirectory directory;
    Snapshot snapshot = example(4);
    if (!has_best) snapshot.best_validation_loss.reset();
    if (has_best) snapshot.grad_scale = {.scale = 0.3f, .growth_tracker = 7, .skipped_steps = 2};
    SnapshotStore store(directory.path(), 1);
    save_example(store, snapshot);
    expect_equal(load_snapshot(directory.path()), snapshot);
  }
}

/// Changes the state in a state.json and its checksum.
void change_state(const std::string& path, const std::function<void(nlohmann::ordered_json&)>& change) {
  auto sealed = nlohmann::ordered_json::parse(read_text(path));
  change(sealed["state"]);
  sealed["checksum"] = hash_text(hash_of(sealed["state"].dump()));
  write_text(path, sealed.dump(2) + "\n");
}

/// Writes the format of a snapshot's state.json. Format 1 has no number.
void set_format(const std::string& path, int64_t format) {
  change_state(path, [&](nlohmann::ordered_json& state) {
    state["format"] = format;
    if (format == 1) state.erase("format");
    if (format <= 2) state["files"] = {{model_file, "0123"}, {optimizer_file, "4567"}};
  });
}

TEST(Snapshot, OneOfAnotherFormatIsRefusedAndNotPassedOver) {
  const TemporaryDirectory directory;
  SnapshotStore store(directory.path(), 5);
  for (int64_t step : {1, 2}) save_example(store, example(step));
  for (const int64_t format : {1, 2, 3, 5}) {
    set_format(directory / "step-00000002/state.json", format);
    const auto refused = [&](auto body) {
      expect_contains(user_error(body), {"step-00000002", concat("format ", format),
                                         format > snapshot_format ? "newer version" : "commit b99816a"});
    };
    refused([&] { store.newest([](const std::string& report) { ADD_FAILURE() << report; }); });
    refused([&] { load_snapshot(directory.path()); });
    refused([&] { load_snapshot(directory / "step-00000002"); });
  }
}

// The checksum of a state shows damage. A state that was written wrong on purpose has the right checksum.
TEST(Snapshot, AStateWithAValueOfAnotherKindIsDamaged) {
  using State = nlohmann::ordered_json;
  State deep = 1;
  for (int level = 0; level < 70; ++level) deep = State::array({deep});
  struct Change {
    std::string place;
    State value;
    std::string problem;
  };
  const std::vector<Change> changes = {
      {"/step", 2.5, "state.step is 2.5: it must be a whole number from 0"},
      {"/optimizer_steps", -1e300, "state.optimizer_steps is -1e+300: it must be a whole number"},
      {"/validations/since_best", uint64_t{1} << 63, "state.validations.since_best is 9223372036854775808"},
      {"/finished", 1, "state.finished is 1: it must be true or false"},
      {"/configuration", nullptr, "state.configuration is missing"},
      {"/artifacts/vocabulary", {1, 2}, "state.artifacts.vocabulary is [1,2]: it must be a text"},
      {"/files/model.safetensors/tensors/1/place", 1e9, "tensors[1].place is 1000000000.0"},
      {"/files/model.safetensors/bytes", "8", "model.safetensors.bytes is \"8\""},
      {"/files/..~1..~1secret", State::object(), "it must be a file of the snapshot's own folder"},
      {"/scope", deep, "its text is nested more than 64 levels deep"}};
  for (const Change& change : changes) {
    const TemporaryDirectory directory;
    SnapshotStore store(directory.path(), 1);
    save_example(store, example(1));
    change_state(directory / "step-00000001/state.json",
                 [&](State& state) { state[State::json_pointer(change.place)] = change.value; });
    expect_contains(user_error([&] { load_snapshot(directory / "step-00000001"); }),
                    {"step-00000001/state.json is damaged: ", change.problem});
  }
}

/// Returns a file with an f16 tensor, then an f32 tensor that begins in the middle of an aligned element.
std::string misaligned_file() {
  std::string header = R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},)"
                       R"("b":{"dtype":"F32","shape":[2],"data_offsets":[2,10]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t bytes = header.size();
  return std::string(reinterpret_cast<const char*>(&bytes), sizeof bytes) + header + std::string(10, 'x');
}

// A file is read in pieces whose ends are aligned. An element across two pieces would be read beyond the
// first.
TEST(Snapshot, AMisalignedTensorIsDamage) {
  const TemporaryDirectory directory;
  SnapshotStore store(directory.path(), 1);
  save_example(store, example(1));
  const std::string file = misaligned_file();
  write_text(directory / "step-00000001/model.safetensors", file);
  change_state(directory / "step-00000001/state.json", [&](nlohmann::ordered_json& state) {
    state["files"]["model.safetensors"] = {
        {"bytes", file.size()},
        {"header", hash_text(hash_of(file.substr(0, file.size() - 10)))},
        {"tensors",
         {{{"name", "a"}, {"place", 0}, {"checksum", ""}}, {{"name", "b"}, {"place", 1}, {"checksum", ""}}}}};
  });
  expect_contains(user_error([&] { load_snapshot(directory / "step-00000001"); }),
                  {"model.safetensors is damaged: tensor b does not begin at a multiple"});
}

TEST(SnapshotStore, KeepsTheNewestAndBest) {
  const TemporaryDirectory directory;
  SnapshotStore store(directory / "snapshots", 2);
  save_best_example(store, example(1));
  for (int64_t step : {1, 2, 30, 100}) save_example(store, example(step));
  save_best_example(store, example(2));
  EXPECT_EQ(names_in(directory / "snapshots"),
            (std::vector<std::string>{"best", "step-00000030", "step-00000100"}));
  expect_equal(load_snapshot(directory / "snapshots"), example(2));
  expect_equal(load_snapshot(directory / "snapshots/step-00000030"), example(30));
}

TEST(SnapshotStore, PassesOverDamagedOnesAloud) {
  const TemporaryDirectory directory;
  SnapshotStore store(directory.path(), 5);
  for (int64_t step : {1, 2, 3}) save_example(store, example(step));
  write_text(directory / "step-00000003/model.safetensors", "cut");
  fs::remove(directory / "step-00000002/state.json");
  std::vector<std::string> reports;
  const auto found = store.newest([&](const std::string& report) { reports.push_back(report); });
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->state().step, 1);
  ASSERT_EQ(reports.size(), 2u);
  expect_contains(reports[0], {"step-00000003/model.safetensors"});
  expect_contains(reports[1], {"step-00000002/state.json"});
}

TEST(SnapshotStore, ADamagedLaterOneTakesNoPlaceFromTheValidOnes) {
  const TemporaryDirectory directory;
  SnapshotStore store(directory.path(), 1);
  save_example(store, example(800));
  fs::copy(directory / "step-00000800", directory / "step-00000900");
  write_text(directory / "step-00000900/state.json", "cut");
  save_example(store, example(850));
  const auto found = store.newest([](const std::string&) {});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->state().step, 850);
}

TEST(LoadSnapshot, ADamagedBestIsPassedOver) {
  const TemporaryDirectory directory;
  SnapshotStore store(directory.path(), 2);
  save_best_example(store, example(1));
  save_example(store, example(2));
  write_text(directory / "best/state.json", "cut");
  EXPECT_EQ(load_snapshot(directory.path()).step, 2);
}

TEST(SnapshotStore, IgnoresWhatAKilledWriterLeft) {
  const TemporaryDirectory directory;
  SnapshotStore store(directory.path(), 5);
  save_example(store, example(7));
  fs::copy(directory / "step-00000007", directory / "step-00000008.tmp");
  fs::create_directory(directory / "step-00000009.12-34.tmp");  // its writer was killed before the first file
  fs::create_directory(directory / "step-");
  fs::create_directory(directory / "step-x1");
  const auto found = store.newest([](const std::string& report) { ADD_FAILURE() << report; });
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->state().step, 7);
  save_example(store, example(8));
  EXPECT_FALSE(fs::exists(directory / "step-00000008.tmp"));
  EXPECT_FALSE(fs::exists(directory / "step-00000009.12-34.tmp"));
  save_best_example(store, example(8));
  fs::copy(directory / "best", directory / "best.1234-5.tmp");
  write_text(directory / "best.1234-5.tmp/state.json.1234-5-0.tmp", "torn");
  save_best_example(store, example(9));
  EXPECT_FALSE(fs::exists(directory / "best.1234-5.tmp"));
}

/// Files that a run did not write, in a folder of its snapshots.
const std::vector<std::string> foreign_files = {"best-models-2025/llama/weights.bin",
                                                "best-models-2025/model.safetensors",
                                                "best-3/model.safetensors",
                                                "best.backup/model.safetensors",
                                                "best.backup.old/model.safetensors",
                                                "best.12.tmp/model.safetensors",
                                                "best.old/photo.jpg",
                                                "step-by-step/chapter1.txt",
                                                "step-by-step.tmp/state.json",
                                                "step-1/model.safetensors",
                                                "step-000000001/state.json",
                                                "step-00000001x/state.json",
                                                "step--0000001/state.json",
                                                "step-00000001.tmp/notes.txt",
                                                "step-00000007/mine.txt",
                                                "step-00000001/notes.txt",
                                                "step-00000001/sub/model.safetensors",
                                                "step-00000002/model-1-of-2.safetensors",
                                                "write-test",
                                                "model.safetensors"};

TEST(SnapshotStore, DeletesNothingThatItDidNotWrite) {
  const TemporaryDirectory directory;
  for (const std::string& file : foreign_files) {
    fs::create_directories(fs::path(directory / file).parent_path());
    write_text(directory / file, "theirs");
  }
  fs::create_directory(directory / "elsewhere");
  write_text(directory / "elsewhere/state.json", "theirs");
  fs::create_directory_symlink("elsewhere", directory / "step-00000004");
  fs::create_directory_symlink("..", directory / "step-00000001/up");
  SnapshotStore store(directory.path(), 1);
  EXPECT_EQ(store.names(), std::vector<std::string>{});
  store.try_to_write();
  for (int64_t step : {1, 2, 3, 5, 10}) save_example(store, example(step));
  for (int64_t step : {1, 2}) save_best_example(store, example(step));
  write_text(directory / "best/notes.txt", "theirs");
  save_best_example(store, example(3));
  EXPECT_EQ(store.names(), (std::vector<std::string>{"step-00000010", "best"}));
  for (const std::string& file : foreign_files) EXPECT_EQ(read_text(directory / file), "theirs") << file;
  EXPECT_EQ(read_text(directory / "best/notes.txt"), "theirs");
  EXPECT_EQ(read_text(directory / "step-00000004/state.json"), "theirs");
  for (const char* step : {"step-00000001", "step-00000002"})
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"})
      EXPECT_FALSE(fs::exists(directory / concat(step, "/", file))) << step << "/" << file;
  expect_equal(load_snapshot(directory / "best"), example(3));
}

TEST(SnapshotStore, WritesThroughNoLink) {
  const TemporaryDirectory directory;
  fs::create_directory(directory / "disk");
  write_text(directory / "disk/notes.txt", "theirs");
  fs::create_directory(directory / "snapshots");
  fs::create_directory_symlink("../disk", directory / "snapshots/best");
  SnapshotStore store(directory / "snapshots", 1);
  expect_contains(error_of([&] { save_best_example(store, example(1)); }),
                  {"snapshots/best", "symbolic link"});
  EXPECT_EQ(names_in(directory / "disk"), std::vector<std::string>{"notes.txt"});
  save_example(store, example(1));
  EXPECT_EQ(names_in(directory / "snapshots"), (std::vector<std::string>{"best", "step-00000001"}));
}

TEST(SnapshotStore, ReplacesASnapshotOfTheSameStep) {
  const TemporaryDirectory directory;
  SnapshotStore store(directory.path(), 5);
  save_example(store, example(7));
  write_text(directory / "step-00000007/state.json", "damaged");
  save_example(store, example(7));
  expect_equal(load_snapshot(directory / "step-00000007"), example(7));
  EXPECT_EQ(names_in(directory.path()), std::vector<std::string>{"step-00000007"});
}

TEST(SnapshotStore, AFailedSaveLosesNothing) {
  const TemporaryDirectory directory;
  SnapshotStore store(directory / "snapshots", 1);
  save_example(store, example(1));
  // A file is in the way of the directory that a save would create. Even root cannot write there.
  write_text(directory / "blocked", "a file");
  SnapshotStore blocked(directory / "blocked", 1);
  EXPECT_THROW(save_example(blocked, example(2)), Error);
  expect_equal(load_snapshot(directory / "snapshots"), example(1));
}

TEST(LoadSnapshot, NamesWhatIsMissing) {
  const TemporaryDirectory directory;
  expect_contains(user_error([&] { load_snapshot(directory / "nothing"); }), {"nothing"});
  expect_contains(user_error([&] { load_snapshot(directory.path()); }), {"no valid snapshot"});
}

}  // namespace
}  // namespace lockstep
