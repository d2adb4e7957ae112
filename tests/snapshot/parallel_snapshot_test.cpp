// SPDX-License-Identifier: Apache-2.0
// Snapshots that several ranks write and read together.
#include <filesystem>
#include <gtest/gtest.h>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/core/error.h"
#include "lockstep/snapshot/snapshot_writer.h"
#include "lockstep/snapshot/stored_snapshot.h"
#include "lockstep/store/object_store.h"
#include "lockstep/tensor/safetensors.h"
#include "tests/support/config_support.h"
#include "tests/support/held_tensors.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_training.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr double patience = 60.0;
// Tensors of several blocks, tensors of less than one block, and tensors that end inside a block.
const std::vector<std::pair<std::string, Shape>> all_shapes = {
    {"wide", {500, 61}}, {"bias", {7}}, {"deep", {9001}}, {"tail", {16, 16}}};
const std::vector<std::string> all_states = {"exp_avg", "exp_avg_sq"};
const std::vector<std::string> all_files = {model_file, optimizer_file, state_file};

/// A layout with a tensor whose rows are cut in the middle of a block. It also has a tensor of zeros that no
/// rank holds, text files, and a model that is split into several files.
const ModelLayout for_others = {
    .rows = {{"wide", 333}},
    .zeros = {{"zeros", {30, 1000}}},
    .texts = {{"config.json", "{}\n"}, {"tokenizer.json", std::string(5000, 'x')}},
    .most_bytes = 100'000};

Snapshot at_step(int64_t step) {
  Snapshot snapshot;
  snapshot.step = step;
  return snapshot;
}

HeldTensors tensors_of(int ranks, HeldTensors::Placement values = HeldTensors::everything,
                       HeldTensors::Placement of_states = HeldTensors::owned_ranges) {
  return {all_shapes, all_states, ranks, values, of_states};
}

/// Writes a snapshot of `step` on `ranks` ranks. Its numbers begin at `step`.
void write_together(const std::string& path, int64_t step, int ranks, bool is_shared = true,
                    HeldTensors::Placement values = HeldTensors::everything,
                    HeldTensors::Placement of_states = HeldTensors::owned_ranges,
                    const ModelLayout& layout = {}) {
  run_ranks(ranks, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    HeldTensors tensors = tensors_of(ranks, values, of_states);
    tensors.count(world.rank(), static_cast<double>(step));
    SnapshotWriter writer(world, tensors,
                          {.path = path, .keep = 10, .is_shared = is_shared, .layout = layout});
    writer.save(at_step(step), {.step = true}, patience);
    writer.go_on();
    EXPECT_EQ(writer.finish(), step);
  });
}

/// Expects that this rank has the numbers of a snapshot that begins at `first`. Elements that the rank does
/// not hold must be NaN.
void expect_counted(HeldTensors& tensors, int rank, double first) {
  for (size_t b = 0; b < tensors.buffers().size(); ++b)
    for (const PlacedTensors::Entry& one : tensors.tensors())
      for (int64_t i = one.place.begin; i < one.place.end; ++i) {
        const auto& held = tensors.buffers()[b].held[static_cast<size_t>(rank)];
        const bool is_held =
            std::ranges::any_of(held, [&](const Range& range) { return i >= range.begin && i < range.end; });
        const float value = tensors.at(b, i);
        ASSERT_TRUE(is_held ? value == HeldTensors::number(first, b, i) : std::isnan(value))
            << one.name << " of buffer " << b << ", element " << i << ": " << value;
      }
}

std::vector<std::string> bytes_of_step(const std::string& path, const std::string& step) {
  std::vector<std::string> bytes;
  for (const std::string& file : all_files) bytes.push_back(read_text(path + "/" + step + "/" + file));
  return bytes;
}

TEST(ParallelSnapshot, ItsBytesDoNotDependOnWhoWroteThem) {
  const TemporaryDirectory directory;
  write_together(directory / "1", 5, 1);
  const std::vector<std::string> expected = bytes_of_step(directory / "1", "step-00000005");
  int number = 1;
  for (const int ranks : {1, 2, 3, 4})
    for (const bool is_shared : {true, false})
      for (const auto values : {HeldTensors::everything, HeldTensors::owned_ranges, HeldTensors::groups})
        for (const auto of_states : {HeldTensors::everything, HeldTensors::owned_ranges}) {
          const std::string path = directory / std::to_string(++number);
          write_together(path, 5, ranks, is_shared, values, of_states);
          EXPECT_TRUE(bytes_of_step(path, "step-00000005") == expected)
              << ranks << " ranks, " << (is_shared ? "each" : "through rank 0") << ", " << number;
          EXPECT_EQ(std::distance(fs::directory_iterator(path), {}), 1) << "only the snapshot must be there";
        }
}

TEST(ParallelSnapshot, WhatOthersSeeIsWholeWhoeverWritesAndReadsIt) {
  const TemporaryDirectory directory;
  std::map<std::string, std::string> expected;
  int number = 0;
  for (const int ranks : {1, 3})
    for (const bool is_shared : {true, false})
      for (const auto values : {HeldTensors::everything, HeldTensors::owned_ranges}) {
        const std::string path = directory / std::to_string(++number);
        write_together(path, 5, ranks, is_shared, values, HeldTensors::owned_ranges, for_others);
        std::map<std::string, std::string> left;
        for (const auto& entry : fs::directory_iterator(path + "/step-00000005"))
          left[entry.path().filename()] = read_text(entry.path());
        if (expected.empty()) expected = left;
        EXPECT_TRUE(left == expected) << ranks << " ranks, " << number;
      }
  EXPECT_EQ(expected.at("tokenizer.json"), std::string(5000, 'x'));
  EXPECT_EQ(expected.size(), 9u)
      << "three files of the model, an index, padding, states, two texts, and state.json";
  for (const auto& [name, shape] : {std::pair("zeros", Shape{30, 1000}), std::pair("wide", Shape{333, 61})}) {
    const auto file = nlohmann::json::parse(expected.at("model.safetensors.index.json"))["weight_map"][name];
    for (const NamedTensor& one : from_safetensors(expected.at(file), file).tensors)
      EXPECT_TRUE(one.name != name || one.tensor.shape() == shape) << name;
  }
  for (const int ranks : {1, 2})
    for (const bool by_each : {true, false})
      run_ranks(ranks, [&](Communicator& communicator) {
        const World world(communicator.shared_from_this());
        HeldTensors tensors = tensors_of(ranks, HeldTensors::owned_ranges);
        const StoredSnapshot found = find_snapshot(directory / "1");
        restore(by_each || world.is_first() ? found : StoredSnapshot(found.text(), nullptr, "elsewhere"),
                world, tensors);
        expect_counted(tensors, world.rank(), 5.0);
      });
}

TEST(ParallelSnapshot, ARunLeavesTheSameBytesAtAnyNumberOfRanks) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 5);
  job.length.steps = 12;
  job.validation.eval_every = 6;
  job.model.n_embd = 32;
  job.snapshots = {.path = directory / "run/snapshots", .every_steps = 4, .keep = 3, .resume = Resume::never};
  std::map<std::string, std::string> expected;
  for (const int ranks : {1, 2, 3, 4}) {
    train_on(ranks, 1, job);
    std::map<std::string, std::string> left;
    for (const auto& entry : fs::recursive_directory_iterator(job.snapshot_place()))
      if (entry.is_regular_file())
        left[entry.path().lexically_relative(job.snapshot_place())] = read_text(entry.path());
    left.erase(".owner");
    if (ranks == 1) expected = left;
    EXPECT_EQ(left.size(), 28u) << "after steps 4, 8 and 12, and the best";
    EXPECT_TRUE(left == expected) << ranks << " ranks";
    fs::remove_all(job.log.dir);
  }
}

TEST(ParallelSnapshot, EachRankCopiesItsPartAlone) {
  for (const int ranks : {2, 3, 4})
    for (const auto values : {HeldTensors::everything, HeldTensors::owned_ranges})
      run_ranks(ranks, [&](Communicator& communicator) {
        const World world(communicator.shared_from_this());
        const HeldTensors tensors = tensors_of(ranks, values);
        const std::vector<SnapshotFile> files = files_of(tensors);
        const Deal deal = deal_to_holders(tensors, files);
        int64_t all = 0;
        for (const RankShare& share : deal) all += bytes_of(files, share);
        EXPECT_EQ(
            all, files[0].bytes + files[1].bytes - std::ssize(files[0].header) - std::ssize(files[1].header));
        const int64_t mine = bytes_of(files, deal[static_cast<size_t>(world.rank())]);
        // Each range of a rank may be larger by up to one block.
        EXPECT_LE(mine, all / ranks + 5 * PlacedTensors::block * 4);
        std::vector<std::byte> memory(static_cast<size_t>(mine));
        collect(world, tensors, files, deal, memory.data());
        EXPECT_EQ(tensors.elements_got() * 4, mine) << "it must copy only what it writes";
      });
}

class PartsForABucket : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Layouts, PartsForABucket, testing::Bool());

TEST_P(PartsForABucket, AreWholeAndTheSameFile) {
  const HeldTensors alone = [] {
    HeldTensors tensors = tensors_of(1);
    tensors.count(0, 1.0);
    return tensors;
  }();
  const std::vector<SnapshotFile> files = files_of(alone, GetParam() ? for_others : ModelLayout());
  const auto assemble = [&](int ranks, int64_t part_bytes) {
    std::vector<std::string> contents;
    for (const SnapshotFile& file : files) contents.emplace_back(static_cast<size_t>(file.bytes), '?');
    std::vector<int> writers(files.size());
    std::mutex mutex;
    run_ranks(ranks, [&](Communicator& communicator) {
      const World world(communicator.shared_from_this());
      HeldTensors tensors = tensors_of(ranks);
      tensors.count(world.rank(), 1.0);
      const Deal deal = deal_parts(files, ranks, [&](int64_t) { return part_bytes; });
      const RankShare& share = deal[static_cast<size_t>(world.rank())];
      std::vector<std::byte> memory(static_cast<size_t>(bytes_of(files, share)));
      collect(world, tensors, files, deal, memory.data());
      const std::scoped_lock lock(mutex);
      for (size_t f = 0; f < files.size(); ++f) {
        const FileShare part = part_of(files, f, share, memory.data());
        if (part.parts.empty()) continue;
        ++writers[f];
        int64_t end = part.parts.front().begin;
        EXPECT_EQ(end % part_bytes, 0);
        for (const ObjectPart& one : part.parts) {
          EXPECT_EQ(one.begin, end) << "the ranges must follow each other";
          std::memcpy(contents[f].data() + one.begin, one.bytes.data(), one.bytes.size());
          end += std::ssize(one.bytes);
        }
        EXPECT_TRUE(end % part_bytes == 0 || end == files[f].bytes) << end;
      }
    });
    return std::pair(contents, writers);
  };
  const auto [expected, one_writer] = assemble(1, 1 << 20);
  EXPECT_EQ(expected[0].find("?\?"), std::string::npos);
  for (const int ranks : {2, 3, 4})
    for (const int64_t part_bytes : {1 << 20, 1 << 16, 4096, 1000}) {
      const auto [contents, writers] = assemble(ranks, part_bytes);
      EXPECT_TRUE(contents == expected) << ranks << " ranks, parts of " << part_bytes;
      const auto states = std::ranges::find(files, std::string(optimizer_file), &SnapshotFile::key);
      EXPECT_GE(writers[static_cast<size_t>(states - files.begin())], part_bytes <= 4096 ? 2 : 1)
          << ranks << " ranks";
    }
}

/// Counts the bytes that are read from each file.
class CountingStore final : public FolderStore {
 public:
  using FolderStore::FolderStore;
  std::optional<std::string> get(const std::string& key, int64_t begin, int64_t bytes) override {
    auto contents = FolderStore::get(key, begin, bytes);
    if (contents) read_[key.substr(key.find('/') + 1)] += std::ssize(*contents);
    return contents;
  }
  int64_t bytes_of(const std::string& file) const { return read_.contains(file) ? read_.at(file) : 0; }

 private:
  std::map<std::string, int64_t> read_;
};

TEST(ParallelSnapshot, EachRankReadsWhatItHolds) {
  const TemporaryDirectory directory;
  write_together(directory.path(), 3, 2);
  for (const int ranks : {1, 2, 3, 4})
    for (const auto values : {HeldTensors::everything, HeldTensors::owned_ranges, HeldTensors::groups})
      run_ranks(ranks, [&](Communicator& communicator) {
        const World world(communicator.shared_from_this());
        HeldTensors tensors = tensors_of(ranks, values);
        const auto store = std::make_shared<CountingStore>(directory.path());
        const std::string text = *store->FolderStore::get("step-00000003/state.json");
        restore(world.is_first() ? StoredSnapshot(store, "step-00000003")
                                 : StoredSnapshot(text, store, "step-00000003"),
                world, tensors);
        expect_counted(tensors, world.rank(), 3.0);
        const std::vector<SnapshotFile> files = files_of(tensors);
        const int64_t header = std::ssize(files[1].header);
        const int64_t most = (files[1].bytes - header) / ranks + 10 * PlacedTensors::block * 4;
        EXPECT_LE(store->bytes_of(optimizer_file), header + std::min(most + (64 << 10) * 4, files[1].bytes));
      });
}

TEST(ParallelSnapshot, ThroughRankZeroAllGetTheSame) {
  const TemporaryDirectory directory;
  write_together(directory.path(), 3, 2);
  for (const int ranks : {2, 3})
    for (const auto values : {HeldTensors::everything, HeldTensors::owned_ranges})
      run_ranks(ranks, [&](Communicator& communicator) {
        const World world(communicator.shared_from_this());
        HeldTensors tensors = tensors_of(ranks, values);
        const StoredSnapshot found = find_snapshot(directory.path());
        restore(world.is_first() ? found : StoredSnapshot(found.text(), nullptr, "elsewhere"), world,
                tensors);
        expect_counted(tensors, world.rank(), 3.0);
      });
}

TEST(ParallelSnapshot, DamageIsNamedByFileAndTensorOnAllRanks) {
  const TemporaryDirectory directory;
  write_together(directory.path(), 3, 3);
  const StoredSnapshot found = find_snapshot(directory.path());
  for (const SnapshotFile& file : files_of(tensors_of(1)))
    for (const StoredTensor& tensor : file.tensors)
      for (const int64_t position : {tensor.begin, tensor.begin + tensor.bytes() / 2, tensor.end() - 1}) {
        const std::string path = directory / ("step-00000003/" + file.key);
        const std::string whole = read_text(path);
        std::string damaged = whole;
        damaged[static_cast<size_t>(position)] ^= 4;
        write_text(path, damaged);
        const std::vector<std::string> named = {"step-00000003/" + file.key, "damaged",
                                                " " + tensor.name + " "};
        expect_contains(user_error([&] { found.verify(); }), named);
        for (const bool by_each : {true, false})
          run_ranks(3, [&](Communicator& communicator) {
            const World world(communicator.shared_from_this());
            HeldTensors tensors = tensors_of(3);
            const StoredSnapshot here =
                world.is_first() ? StoredSnapshot(open_store(directory.path()), "step-00000003")
                : by_each        ? StoredSnapshot(found.text(), open_store(directory.path()), "step-00000003")
                                 : StoredSnapshot(found.text(), nullptr, "elsewhere");
            expect_contains(user_error([&] { restore(here, world, tensors); }), named);
          });
        write_text(path, whole);
      }
  found.verify();
}

TEST(ParallelSnapshot, AFolderThatARankDoesNotSeeIsNotShared) {
  const TemporaryDirectory directory;
  testing::internal::CaptureStderr();
  run_ranks(3, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    EXPECT_TRUE(is_shared_by_all(world, directory / "shared"));
    EXPECT_FALSE(is_shared_by_all(world, directory / (world.rank() == 2 ? "other" : "shared")));
  });
  expect_contains(testing::internal::GetCapturedStderr(), {"through rank 0", "rank 2", "does not see"});
  for (const char* folder : {"shared", "other"})
    EXPECT_TRUE(!fs::exists(directory / folder) || fs::is_empty(directory / folder))
        << "nothing is left in " << folder;
}

TEST(ParallelSnapshot, ARankThatCannotWriteIsNamedAndTheOnesBeforeStay) {
  const TemporaryDirectory directory;
  write_together(directory / "shared", 1, 3);
  testing::internal::CaptureStderr();
  run_ranks(3, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    HeldTensors tensors = tensors_of(3);
    tensors.count(world.rank(), 2.0);
    // Rank 2 looks in another folder for the snapshot that rank 0 has begun.
    SnapshotWriter writer(world, tensors,
                          {.path = directory / (world.rank() == 2 ? "other" : "shared"), .keep = 10});
    writer.save(at_step(2), {.step = true, .best = true}, patience);
    EXPECT_EQ(writer.finish(), -1);
    EXPECT_EQ(writer.best_loss(), std::nullopt);
  });
  expect_contains(testing::internal::GetCapturedStderr(),
                  {"rank 2: the snapshot", "could not be written", "training continues"});
  EXPECT_EQ(std::distance(fs::directory_iterator(directory / "shared"), {}), 1)
      << "only the snapshot must be there";
  EXPECT_EQ(find_snapshot(directory / "shared").state().step, 1);
}

TEST(ParallelSnapshot, ARankThatDiesWhileItWritesLeavesTheOnesBefore) {
  const TemporaryDirectory directory;
  write_together(directory.path(), 1, 2);
  const HeldTensors tensors = tensors_of(2, HeldTensors::everything, HeldTensors::everything);
  const std::vector<SnapshotFile> files = files_of(tensors);
  const Deal deal = deal_to_holders(tensors, files);
  std::vector<std::byte> memory(static_cast<size_t>(bytes_of(files, deal[0])));
  {
    SnapshotStore store(directory.path(), 10);
    const std::string begun = store.begin(SnapshotStore::Kind::step, 2, files);
    const std::string written =
        store.write(SnapshotStore::Kind::step, 2, begun, files, deal[0], memory.data());
    // Rank 1 has died. Without the bytes that it did not write, the snapshot cannot be completed.
    EXPECT_THROW(store.end(SnapshotStore::Kind::step, at_step(2), begun, files, {written}), Error);
  }
  const auto newest =
      SnapshotStore(directory.path(), 10).newest([](const std::string& report) { ADD_FAILURE() << report; });
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(newest->state().step, 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), {}), 2);
  write_together(directory.path(), 3, 2);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), {}), 2)
      << "files of the dead rank must be removed";
}

TEST(ParallelSnapshot, AllLeaveOneOutTogether) {
  const TemporaryDirectory directory;
  const QuietStderr quiet;
  run_ranks(3, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    HeldTensors tensors = tensors_of(3);
    tensors.count(world.rank(), 1.0);
    SnapshotWriter writer(world, tensors, {.path = directory.path(), .keep = 10});
    // Each save takes several meetings of the ranks. With a patience of 0, the second is skipped.
    writer.save(at_step(1), {.step = true, .best = true}, 0.0);
    writer.save(at_step(2), {.step = true}, 0.0);
    EXPECT_EQ(writer.finish(), 1);
    writer.save(at_step(3), {.step = true}, patience);
    writer.save(at_step(4), {.step = true}, patience);
    EXPECT_EQ(writer.finish(), 4);
  });
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory.path())) names.insert(entry.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"best", "step-00000001", "step-00000003", "step-00000004"}));
}

}  // namespace
}  // namespace lockstep
