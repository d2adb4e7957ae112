// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <gtest/gtest.h>

#include "nn/adamw.h"
#include "snapshot/run_folder.h"
#include "snapshot/snapshot.h"
#include "tensor/create.h"
#include "tests/support/config_support.h"
#include "tests/support/held_tensors.h"
#include "tests/support/load_snapshot.h"
#include "tests/support/tiny_training.h"
#include "train/writer.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const std::string version_1 = LOCKSTEP_SOURCE_DIR "/tests/snapshot/version_1";
const std::string version_2 = LOCKSTEP_SOURCE_DIR "/tests/snapshot/version_2";

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

TEST(VersionOne, LinearWeightsAreTransposedWhereTheModelHasThemTheOtherWayRound) {
  const LoadedSnapshot as_written = load_snapshot(version_1);
  EXPECT_EQ(find_snapshot(version_1).format(), 1);
  const auto written = [&](const std::string& name) {
    for (const NamedTensor& tensor : as_written.model)
      if (tensor.name == name) return tensor.tensor;
    return Tensor();
  };
  std::vector<NamedTensor> turned, kept;
  for (const std::string part : {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"}) {
    const std::string name = "transformer.h.0." + part + ".weight";
    const Shape shape = written(name).shape();
    turned.push_back({name, zeros({shape[1], shape[0]})});
    kept.push_back({name, zeros(shape)});
  }
  turned.push_back({"transformer.wpe.weight", zeros(written("transformer.wpe.weight").shape())});
  for (const auto* listed : {&turned, &kept}) {
    const ParameterSpace space(*listed);
    SpaceTensors tensors(space, nullptr, 1);
    restore(find_snapshot(version_1), World::alone(), tensors);
  }
  EXPECT_EQ(to_doubles(turned[4].tensor), to_doubles(written("transformer.wpe.weight")));
  for (size_t i = 0; i < kept.size(); ++i) {
    const Tensor original = written(kept[i].name);
    EXPECT_EQ(to_doubles(kept[i].tensor), to_doubles(original));
    const int64_t rows = original.shape()[0], columns = original.shape()[1];
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < columns; ++column)
        ASSERT_EQ(turned[i].tensor.data<float>()[column * rows + row],
                  original.data<float>()[row * columns + column])
            << kept[i].name;
  }
}

TEST(VersionOne, GenerateWritesWithItAsBefore) {
  const Writer writer = load_writer(version_1);
  // This text was generated with --temperature 0 by the version that trained the model.
  EXPECT_EQ(write_text(*writer.model, *writer.tokenizer, "", {.tokens = 60, .temperature = 0}),
            "\n- foy fot sot sot dat dat dat dat dat dat dat dat dat dat da");
}

TEST(VersionTwo, EveryTensorComesToTheRanksThatHoldIt) {
  const LoadedSnapshot as_written = load_snapshot(version_2);
  EXPECT_EQ(find_snapshot(version_2).format(), 2);
  EXPECT_EQ(as_written.optimizer.size(), 2 * as_written.model.size());
  std::vector<std::vector<double>> written;
  for (const auto* tensors : {&as_written.model, &as_written.optimizer})
    for (const NamedTensor& one : *tensors) written.push_back(to_doubles(one.tensor));
  run_ranks(3, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    std::vector<NamedTensor> model;
    for (const NamedTensor& one : as_written.model)
      model.push_back({one.name, zeros(one.tensor.shape()).set_requires_grad()});
    ParameterSpace space(model);
    AdamW optimizer(space, {});
    SpaceTensors tensors(space, &optimizer, 3);
    restore(find_snapshot(version_2), world, tensors);
    size_t index = 0;
    for (const NamedTensor& one : space.named())
      EXPECT_EQ(to_doubles(one.tensor), written[index++]) << one.name;
    const std::vector<Range> mine = space.owned_ranges(3)[static_cast<size_t>(world.rank())];
    for (const Optimizer::State& state : optimizer.states())
      for (const Parameter& parameter : space.parameters()) {
        const std::vector<double>& values = written[index++];
        for (int64_t i = 0; i < parameter.place.size(); ++i) {
          const int64_t element = parameter.place.begin + i;
          const bool is_mine = std::ranges::any_of(
              mine, [&](const Range& range) { return element >= range.begin && element < range.end; });
          EXPECT_EQ(state.flat.data<float>()[element], is_mine ? values[static_cast<size_t>(i)] : 0.0);
        }
      }
  });
}

void go_on_from(const std::string& version) {
  const TemporaryDirectory directory;
  fs::create_directories(directory / "run/snapshots");
  fs::copy(version, directory / "run/snapshots/step-00000200");
  Config config = config_of_earlier_run(find_snapshot(version).state().configuration, version);
  config.log.dir = directory / "run";
  config.snapshot.path = directory / "run/snapshots";
  config.train.steps = 220;
  config.train.decay_steps = 0;
  const QuietStderr quiet;
  const World world = World::alone();
  const LanguageData data = load_language_data(config, world);
  const auto model = make_gpt(config, data.vocabulary_size);
  EXPECT_EQ(train(config, world, language_task(config, *model, data)), 0);
  const RunResult result = read_result(config.log.dir);
  ASSERT_EQ(result.loss_bits.size(), 20u);
  for (const std::string& bits : result.loss_bits)
    EXPECT_LT(std::bit_cast<float>(static_cast<uint32_t>(std::stoul(bits, nullptr, 16))), 2.2f)
        << "an untrained model has a loss of 3.8";
  EXPECT_EQ(find_snapshot(config.log.dir).format(), 4);
}

TEST(VersionOne, ARunGoesOnFromIt) { go_on_from(version_1); }
TEST(VersionTwo, ARunGoesOnFromIt) { go_on_from(version_2); }

}  // namespace
}  // namespace lockstep
