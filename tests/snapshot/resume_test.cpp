// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "snapshot/run_folder.h"
#include "snapshot/snapshot.h"
#include "tensor/create.h"
#include "tests/support/config_support.h"
#include "tests/support/held_tensors.h"
#include "tests/support/tiny_training.h"

namespace lockstep {
namespace {

/// Returns distinct numbers.
Tensor count_from(double first, const Shape& shape) {
  std::vector<float> values;
  for (int64_t i = 0; i < shape.elements(); ++i)
    values.push_back(static_cast<float>(first + static_cast<double>(i)));
  return from_values(values, shape);
}

Snapshot counted(int64_t step) {
  return {.step = step,
          .optimizer_steps = step,
          .best_validation_loss = {},
          .configuration = "[train]\nsteps = 100\n",
          .artifacts = {},
          .matmul_plans = ""};
}

/// Returns tensors that are larger than the chunks in which files are read.
std::vector<NamedTensor> counted_tensors(double first) {
  return {{"large", count_from(first, {1500, 1500})}, {"small", count_from(first, {3})}};
}

void save_counted(SnapshotStore& store, const Snapshot& snapshot) {
  const ParameterSpace space(counted_tensors(static_cast<double>(snapshot.step)));
  save_snapshot(store, snapshot, SpaceTensors(space, nullptr, 1));
}

TEST(Restore, EveryRankGetsWhatRankZeroReads) {
  const TemporaryDirectory directory;
  const Snapshot snapshot = counted(7);
  SnapshotStore store(directory.path(), 1);
  save_counted(store, snapshot);
  run_ranks(3, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    std::vector<NamedTensor> parameters = {{"small", zeros({3})}, {"large", zeros({1500, 1500})}};
    const ParameterSpace space(parameters);
    SpaceTensors tensors(space, nullptr, 3);
    const StoredSnapshot found = find_snapshot(directory.path());
    const StoredSnapshot stored = world.is_first() ? found : StoredSnapshot(found.text(), "elsewhere");
    restore(stored, world, tensors);
    EXPECT_EQ(to_doubles(parameters[0].tensor), to_doubles(counted_tensors(7)[1].tensor));
    EXPECT_EQ(to_doubles(parameters[1].tensor), to_doubles(counted_tensors(7)[0].tensor));
    for (const NamedTensor& wrong : {NamedTensor{"other", zeros({3})}, NamedTensor{"small", zeros({4})}}) {
      const ParameterSpace other({wrong});
      SpaceTensors wrong_tensors(other, nullptr, 3);
      expect_contains(user_error([&] { restore(stored, world, wrong_tensors); }), {wrong.name});
    }
  });
}

TEST(Restore, ASnapshotThatIsDamagedAfterItWasFoundGivesWayToTheOneBefore) {
  const TemporaryDirectory directory;
  Config config;
  config.train.steps = 100;
  config.log.dir = directory / "run";
  config.snapshot.path = directory / "run/snapshots";
  SnapshotStore store(config.snapshot.path, 5);
  for (const int64_t step : {3, 5}) {
    Snapshot snapshot = counted(step);
    snapshot.configuration = to_ini(config);
    save_counted(store, snapshot);
  }
  const auto damage = [&](const char* step) {
    std::fstream file(config.snapshot.path + step, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(9'000'000);
    file.put('\x7f');
  };
  const QuietStderr quiet;
  run_ranks(2, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    const Artifacts artifacts;
    std::vector<NamedTensor> parameters = {{"small", zeros({3})}, {"large", zeros({1500, 1500})}};
    const ParameterSpace space(parameters);
    SpaceTensors tensors(space, nullptr, 2);
    RunFolder folder(config, world, artifacts);
    EXPECT_EQ(folder.snapshot()->step, 5);
    on_first_rank(world, [&] { damage("/step-00000005/model.safetensors"); });
    folder.load(tensors);
    EXPECT_EQ(folder.snapshot()->step, 3);
    EXPECT_EQ(to_doubles(parameters[1].tensor), to_doubles(counted_tensors(3)[0].tensor));
    on_first_rank(world, [&] { damage("/step-00000003/model.safetensors"); });
    expect_contains(user_error([&] { folder.load(tensors); }),
                    {"step-00000003/model.safetensors", "damaged", "no valid snapshot is left", "--fresh"});
  });
}

}  // namespace
}  // namespace lockstep
