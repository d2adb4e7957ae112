// SPDX-License-Identifier: Apache-2.0
// Models that transformers wrote, and results that transformers and PyTorch computed with them
// (tests/golden).
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>

#include "lockstep/huggingface/model_layout.h"
#include "lockstep/huggingface/source_model.h"
#include "lockstep/huggingface/writer.h"
#include "lockstep/models/family.h"
#include "lockstep/models/gpt2/gpt2_options.h"
#include "lockstep/nn/generate.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/safetensors.h"
#include "lockstep/train/language_task.h"
#include "tests/support/tiny_training.h"
#include "tests/support/user_error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> llamas = {"llama", "llama3", "mistral", "qwen2", "qwen3"};
const std::vector<std::string> shapes = {"odd_vocabulary", "three_heads", "untied", "without_prefix", "llama",
                                         "llama3",         "mistral",     "qwen2",  "qwen3"};
constexpr int steps = 10, samples = 3, positions = 16, tokens = 12;

bool is_llama(const std::string& shape) { return std::ranges::count(llamas, shape) > 0; }

/// Returns a folder of the tree, or of the folders that scripts/compare_transformers.py has made.
std::string folder_of(const std::string& shape) {
  const char* others = std::getenv("LOCKSTEP_HUGGINGFACE_FOLDERS");
  return concat(others != nullptr ? others : LOCKSTEP_SOURCE_DIR "/tests/golden/huggingface", "/", shape);
}

/// Returns a tensor that was computed with a model.
Tensor expected_of(const std::string& shape, const std::string& name) {
  for (const NamedTensor& one : load_safetensors(folder_of(shape) + "/expected.safetensors").tensors)
    if (one.name == name) return one.tensor;
  throw Error("nothing is expected of " + name);
}

/// The batches of a file, one sample after the other, repeated without end.
class StoredBatches : public Dataset {
 public:
  explicit StoredBatches(const std::string& shape)
      : inputs_(to_doubles(expected_of(shape, "inputs"))),
        targets_(to_doubles(expected_of(shape, "targets"))) {}

  int64_t size() const override { return std::ssize(inputs_) / tokens; }
  SampleField input() const override { return {{tokens}, DType::i32}; }
  SampleField target() const override { return {{tokens}, DType::i32}; }
  void fetch(int64_t index, void* input, void* target) const override {
    for (int64_t i = 0; i < tokens; ++i) {
      static_cast<int32_t*>(input)[i] =
          static_cast<int32_t>(inputs_[static_cast<size_t>(index * tokens + i)]);
      static_cast<int32_t*>(target)[i] =
          static_cast<int32_t>(targets_[static_cast<size_t>(index * tokens + i)]);
    }
  }

 private:
  std::vector<double> inputs_, targets_;
};

/// Returns the settings of make_huggingface.py's training.
Job config_of(const TemporaryDirectory& directory, const std::string& from) {
  Job job;
  job.model.from = from;
  job.text.block_size = tokens;
  job.length.steps = steps;
  job.batches.batch_size = samples;
  job.schedule.learning_rate = job.schedule.min_lr = 1e-3;
  job.optimizer.beta2 = 0.95;
  job.validation.eval_every = -1;
  job.log.dir = directory / "run";
  job.log.every_steps = 1000;
  job.snapshots.path = directory / "run/snapshots";
  return job;
}

/// Trains on ranks that are threads. Returns rank 0's exit code.
int fine_tune(Job settings, const std::string& shape, int ranks = 1) {
  const QuietStderr quiet;
  int code = 0;
  run_ranks(ranks, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    Job job = settings;
    job.compute.threads = 1;
    job = resolve(job, world);
    const auto source = take_source(job, world);
    LanguageData data;
    data.training = std::make_shared<StoredBatches>(shape);
    data.vocabulary_size = job.model.vocab_size;
    const auto model = make_model(job, data.vocabulary_size);
    const LanguageTask original(job, *model, data, source.get());
    AlteredTask task(original);
    task.given.shuffle = false;
    const int code_of_rank = train(job, world, task);
    if (world.is_first()) code = code_of_rank;
  });
  return code;
}

/// Returns the values of a file without masks, under the names without the prefix of the architecture.
std::map<std::string, std::vector<double>> values_in(const std::string& folder) {
  std::map<std::string, std::vector<double>> values;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("model") || !name.ends_with(".safetensors")) continue;
    const ModelFolder model(open_store(folder));
    for (const auto& [tensor, place] : model.tensors()) {
      const std::string bytes = model.read(place, 0, place.shape.elements());
      std::vector<float> read(static_cast<size_t>(place.shape.elements()));
      std::memcpy(read.data(), bytes.data(), bytes.size());
      values[tensor] = std::vector<double>(read.begin(), read.end());
    }
  }
  return values;
}

class ModelFrom : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Shapes, ModelFrom, testing::ValuesIn(shapes),
                         [](const auto& shape) { return shape.param; });

TEST_P(ModelFrom, ComputesTheLogitsOfTransformers) {
  const TemporaryDirectory directory;
  Job job = config_of(directory, folder_of(GetParam()));
  const auto source = take_source(job, World::alone());
  EXPECT_EQ(job.model.n_positions, positions);
  const auto model = load_model(*source);
  EXPECT_EQ(table_rows(job.model) % 64, 0);
  const Tensor inputs = expected_of(GetParam(), "inputs")
                            .reshape({steps, samples * tokens})
                            .slice(0, 1)
                            .reshape({samples, tokens});
  const NoGrad no_grad;
  const std::vector<double> logits = to_doubles((*model)(inputs, {})),
                            expected = to_doubles(expected_of(GetParam(), "logits"));
  const auto rows = static_cast<size_t>(table_rows(job.model)),
             known = static_cast<size_t>(job.model.vocab_size);
  ASSERT_EQ(expected.size() / known, logits.size() / rows);
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(logits[i / known * rows + i % known], expected[i], 1e-4) << i;
}

class LlamaFrom : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Shapes, LlamaFrom, testing::ValuesIn(llamas),
                         [](const auto& shape) { return shape.param; });

/// The cached model must continue texts as the whole model of transformers does, until the context is full.
TEST_P(LlamaFrom, ContinuesTextsAsTransformers) {
  const auto model = load_model(folder_of(GetParam()));
  const std::vector<double> greedy = to_doubles(expected_of(GetParam(), "greedy"));
  for (auto text = greedy.begin(); text != greedy.end(); text += positions) {
    const std::vector<int32_t> expected(text, text + positions);
    const std::vector<int32_t> prompt(expected.begin(), expected.begin() + 4);
    EXPECT_EQ(generate(*model, prompt, {.tokens = positions - 4, .temperature = 0.0}), expected);
  }
}

TEST_P(ModelFrom, TenStepsHaveTheLossesOfPyTorch) {
  const TemporaryDirectory directory;
  ASSERT_EQ(fine_tune(config_of(directory, folder_of(GetParam())), GetParam()), 0);
  const std::vector<double> losses = read_result(directory / "run").losses;
  const std::vector<double> expected = to_doubles(expected_of(GetParam(), "losses"));
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t step = 0; step < losses.size(); ++step) EXPECT_NEAR(losses[step], expected[step], 1e-5) << step;
}

TEST_P(ModelFrom, LeavesAgainWithEveryBit) {
  const TemporaryDirectory directory;
  const std::string original = folder_of(GetParam()), copied = directory / "copied";
  convert_model(SourceModel(original, World::alone()), copied, DType::f32, 25'000);
  EXPECT_GT(std::distance(fs::directory_iterator(copied), {}), 4)
      << "several files of at most 25 kB, and an index";
  const auto expected = values_in(original);
  EXPECT_EQ(values_in(copied), expected);
  // These steps change nothing. The snapshot must hold the run's initial values, at any number of ranks.
  Job job = config_of(directory, copied);
  job.length.steps = 1;
  job.schedule.learning_rate = job.schedule.min_lr = 0.0;
  ASSERT_EQ(fine_tune(job, GetParam(), GetParam() == "untied" ? 2 : 1), 0);
  const std::string snapshot = directory / "run/snapshots/step-00000001";
  EXPECT_EQ(values_in(snapshot), expected);
  const auto json = nlohmann::json::parse(read_text(snapshot + "/config.json"));
  EXPECT_EQ(json["vocab_size"], nlohmann::json::parse(read_text(original + "/config.json"))["vocab_size"]);
  EXPECT_EQ(json[is_llama(GetParam()) ? "max_position_embeddings" : "n_positions"], positions);
  EXPECT_TRUE(json["eos_token_id"].is_null());
}

TEST(ModelFromKeys, ThatSayOtherwiseAreRefused) {
  const TemporaryDirectory directory;
  const Job open = config_of(directory, folder_of("three_heads"));
  const auto said = [&](const char* key, const char* value) {
    Job job = with_settings(open, {{key, value}});
    return user_error([&] { take_source(job, World::alone(), {{key, value}}); });
  };
  const std::vector<std::array<const char*, 3>> others = {{"model.n_layer", "3", "2"},
                                                          {"model.n_embd", "64", "48"},
                                                          {"model.vocab_size", "65", "64"},
                                                          {"model.n_positions", "15", "16"},
                                                          {"model.tie_weights", "false", "true"},
                                                          {"model.activation", "gelu_tanh", "gelu_erf"},
                                                          {"model.bias", "false", "true"}};
  for (const auto& [key, value, there] : others)
    expect_contains(said(key, value),
                    {concat(key, " = ", value, ", but"), concat("has ", there), "leave the key out"});
  expect_contains(said("data.block_size", "17"), {"data.block_size = 17", "16 positions"});
  expect_contains(said("model.from", "/nowhere"), {"model.from: /nowhere"});
  EXPECT_EQ(said("model.n_layer", "2"), "(nothing was thrown)") << "an equal value is no contradiction";
  Job job = with_settings(open, {{"model.vocab_multiple", "1"}});
  take_source(job, World::alone());
  EXPECT_EQ(table_rows(job.model), 64);
  EXPECT_EQ(job.model.n_head, 3);
}

TEST(ModelFromSnapshot, BeginsWhereAnotherRunEnded) {
  const TemporaryDirectory directory, other;
  const std::string shape = "odd_vocabulary";
  ASSERT_EQ(fine_tune(config_of(directory, folder_of(shape)), shape), 0);
  const Job again = config_of(other, directory / "run");
  ASSERT_EQ(fine_tune(again, shape), 0);
  EXPECT_LT(read_result(other / "run").losses.front(), read_result(directory / "run").losses.front())
      << "the model has seen that batch";
  convert_model(SourceModel(other / "run", World::alone()), other / "half", DType::bf16);
  const ModelFolder half(open_store(other / "half"));
  EXPECT_EQ(half.tensors().at("wte.weight").dtype, DType::bf16);
  EXPECT_NEAR(static_cast<double>(values_in(other / "half").at("wte.weight")[7]),
              values_in(other / "run/snapshots/step-00000010").at("wte.weight")[7], 1e-3);
  EXPECT_NE(user_error([&] {
              convert_model(SourceModel(other / "run", World::alone()), other / "half", DType::bf16);
            }).find("exists already"),
            std::string::npos);
}

TEST(ModelFromSnapshot, WithADamagedStateIsRefusedAlthoughItHasAConfig) {
  const TemporaryDirectory directory;
  convert_model(SourceModel(folder_of("untied"), World::alone()), directory / "out", DType::f32);
  std::ofstream(directory / "out/state.json") << "{}";
  expect_contains(user_error([&] { SourceModel(directory / "out", World::alone()); }),
                  {"state.json is damaged"});
}

class ModelFromRanks : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Shapes, ModelFromRanks, testing::Values("untied", "llama3"),
                         [](const auto& shape) { return shape.param; });

/// The bits must not depend on the number of ranks, on the sharding of values, or on resuming.
TEST_P(ModelFromRanks, HaveTheSameBits) {
  const std::string shape = GetParam();
  std::vector<std::string> expected;
  for (const int ranks : {1, 2, 3}) {
    const TemporaryDirectory directory;
    Job job = config_of(directory, folder_of(shape));
    job.dist.replicas = 3;
    job.batches.batch_size = 1;
    if (ranks > 1) job.dist.shard = ranks == 2 ? Shard::full : Shard::optimizer;
    job.length.steps = 4;
    ASSERT_EQ(fine_tune(job, shape, ranks), 0);
    job.length.steps = 8;
    ASSERT_EQ(fine_tune(job, shape, ranks), 0);
    const std::vector<std::string> bits = read_bits(directory / "run");
    ASSERT_EQ(bits.size(), 9u);
    if (ranks == 1) expected = bits;
    EXPECT_EQ(bits, expected) << ranks << " ranks";
  }
}

/// model.bias = false, and rows beyond the text's symbols. The snapshot for others has zero biases and a
/// shortened table. Lockstep restores all rows from it.
TEST(SnapshotForOthers, HasZerosForBiasesAndTheTokenizersVocabulary) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 3);
  job.model.own["gpt2"] = Gpt2Options{.bias = false};
  job.snapshots.path = directory / "run/snapshots";
  job.snapshots.resume = Resume::if_possible;
  job.compute.threads = 1;
  std::string whole;
  for (const int ranks : {1, 3}) {
    const auto train_so_far = [&](int64_t last) {
      job.length.steps = last;
      job.schedule.decay_steps = 6;
      int code = 0;
      const QuietStderr quiet;
      run_ranks(ranks, [&](Communicator& communicator) {
        const World world(communicator.shared_from_this());
        Job settled = job;
        settled = resolve(settled, world);
        const LanguageData data = short_language_data(settled, 100);
        const auto model = make_model(settled, data.vocabulary_size + 7);
        const int code_of_rank = train(settled, world, LanguageTask(settled, *model, data));
        if (world.is_first()) code = code_of_rank;
      });
      return code;
    };
    ASSERT_EQ(train_so_far(3), 0);
    ASSERT_EQ(train_so_far(6), 0) << "resumes with the rows that are hidden from others";
    const std::string snapshot = directory / "run/snapshots/step-00000006";
    const ModelFolder folder(open_store(snapshot));
    const LanguageData data = short_language_data(job, 100);
    EXPECT_EQ(folder.description().options.vocab_size, data.vocabulary_size);
    EXPECT_EQ(folder.text("tokenizer.json"), data.tokenizer->to_json());
    EXPECT_TRUE(folder.text("tokenizer_config.json").has_value());
    EXPECT_EQ(values_in(snapshot).at("h.0.mlp.c_fc.bias"), std::vector<double>(64, 0.0));
    EXPECT_EQ(load_safetensors(snapshot + "/padding.safetensors").tensors.front().tensor.shape(),
              (Shape{7, 16}));
    const std::string bits = read_text(snapshot + "/model.safetensors") +
                             read_text(snapshot + "/padding.safetensors") +
                             read_text(snapshot + "/state.json");
    if (ranks == 1) whole = bits;
    EXPECT_TRUE(bits == whole) << ranks << " ranks";
    fs::remove_all(directory / "run");
  }
}

/// A tokenizer that its characters do not identify.
class AnyTokenizer : public Tokenizer {
 public:
  explicit AnyTokenizer(const std::string& characters) : characters_(characters) {}
  std::string to_json() const override { return characters_.to_json(); }
  int64_t vocabulary_size() const override { return characters_.vocabulary_size(); }
  std::vector<int32_t> encode(std::string_view text, std::string_view source) const override {
    return characters_.encode(text, source);
  }
  std::string decode(std::span<const int32_t> ids) const override { return characters_.decode(ids); }
  size_t safe_cut(std::string_view text, size_t near) const override {
    return characters_.safe_cut(text, near);
  }
  std::vector<int32_t> beginning() const override { return characters_.beginning(); }

 private:
  CharTokenizer characters_;
};

/// state.json has only a hash of such a tokenizer.
TEST(SnapshotForOthers, KeepsAnyTokenizerAsItsFile) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 1);
  job.snapshots.path = directory / "run/snapshots";
  job.snapshots.resume = Resume::if_possible;
  job.length.steps = 2;
  job.schedule.decay_steps = 4;
  const auto train_with = [&](const std::string& more, int64_t last) {
    const QuietStderr quiet;
    job.length.steps = last;
    const Job resolved = resolve(job, World::alone());
    LanguageData data = short_language_data(resolved, 100);
    data.tokenizer = std::make_shared<AnyTokenizer>(sample_text(100) + more);
    const auto model = make_model(resolved, 60);
    return train(resolved, World::alone(), LanguageTask(resolved, *model, data));
  };
  ASSERT_EQ(train_with("", 2), 0);
  ASSERT_EQ(train_with("", 4), 0) << "a run with the same tokenizer resumes";
  const std::string snapshot = directory / "run/snapshots/step-00000004";
  EXPECT_EQ(load_writer(directory / "run").tokenizer->to_json(), read_text(snapshot + "/tokenizer.json"));
  EXPECT_EQ(read_text(snapshot + "/state.json").find("WordLevel"), std::string::npos);
  convert_model(SourceModel(snapshot, World::alone()), directory / "out", DType::f32);
  EXPECT_EQ(read_text(directory / "out/tokenizer.json"), read_text(snapshot + "/tokenizer.json"));
  job.snapshots.resume = Resume::required;
  expect_contains(user_error([&] { train_with("~", 6); }), {"the tokenizer differs"});
  std::ofstream(snapshot + "/tokenizer.json", std::ios::app) << " ";
  expect_contains(user_error([&] { load_writer(snapshot); }), {"tokenizer.json", "damaged"});
}

TEST(ModelFromSnapshot, WithADamagedTensorIsRefusedOnAllRanks) {
  const TemporaryDirectory directory;
  Job job = tiny_config(directory, 1);
  job.snapshots.path = directory / "run/snapshots";
  job.length.steps = 2;
  train_on(1, 1, job);
  const std::string path = directory / "run/snapshots/best/model.safetensors";
  std::string bytes = read_text(path);
  bytes[bytes.size() - 1000] ^= 1;
  write_text(path, bytes);
  run_ranks(2, [&](Communicator& communicator) {
    const SourceModel source(directory / "run", World(communicator.shared_from_this()));
    const auto model = make_model(job, source.description().options.vocab_size);
    const ParameterSpace space(model->parameters());
    SpaceTensors tensors(space, nullptr, 2);
    expect_contains(user_error([&] { source.load(World(communicator.shared_from_this()), tensors); }),
                    {"best/model.safetensors is damaged: the checksum of transformer."});
  });
}

}  // namespace
}  // namespace lockstep
