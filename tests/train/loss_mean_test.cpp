// SPDX-License-Identifier: Apache-2.0
// The loss of a step is the mean over all its targets that count, however replicas and micro-batches divide
// them. The targets of examples are unequally many, or none.
#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/text.h"
#include "lockstep/data/loader.h"
#include "lockstep/tensor/autograd.h"
#include "lockstep/tensor/create.h"
#include "tests/support/config_support.h"
#include "tests/support/tiny_training.h"

namespace lockstep {
namespace {

/// Blocks of which some targets do not count: sample i keeps (i + 4) % 9 at most. Samples 8 to 11 keep none.
class Masked : public Dataset {
 public:
  explicit Masked(std::shared_ptr<const Dataset> blocks) : blocks_(std::move(blocks)) {}

  int64_t size() const override { return blocks_->size(); }
  SampleField input() const override { return blocks_->input(); }
  SampleField target() const override { return blocks_->target(); }
  void fetch(int64_t index, void* input, void* target) const override {
    blocks_->fetch(index, input, target);
    auto* const targets = static_cast<int32_t*>(target);
    int64_t kept = 0;
    for (int64_t i = 0; i < blocks_->target().shape.elements(); ++i)
      if (targets[i] >= 0 && kept++ >= limit(index)) targets[i] = -1;
  }
  std::optional<int64_t> counted_targets(int64_t index) const override {
    return std::min(limit(index), blocks_->counted_targets(index).value());
  }

 private:
  static int64_t limit(int64_t index) { return index / 4 == 2 ? 0 : (index + 4) % 9; }

  std::shared_ptr<const Dataset> blocks_;
};

/// How the four samples of a step are divided, and who executes them.
struct Cut {
  int replicas = 1;
  int64_t batch_size = 4;
  int64_t accumulate = 1;
  int ranks = 1;
  Shard shard = Shard::none;
};

/// The loss and the norm of each step, and the loss of the validation at the end.
struct Outcome {
  RunResult bits = {};
  std::vector<double> values = {};
};

Job job_of(const Cut& cut, const TemporaryDirectory& directory) {
  Job job = tiny_config(directory, cut.replicas);
  job.text.dataset = "examples.jsonl";
  job.text.packing = false;
  job.model.dropout = 0.0;
  job.length.steps = 5;
  job.batches.batch_size = cut.batch_size;
  job.batches.accumulate = cut.accumulate;
  job.dist.shard = cut.shard;
  return job;
}

/// Trains on masked examples in their order, on ranks that are threads.
Outcome train_masked(const Cut& cut, const Job& settings) {
  const QuietStderr quiet;
  run_ranks(cut.ranks, [&](Communicator& communicator) {
    const World world(communicator.shared_from_this());
    const Job job = resolve(settings, world);
    const LanguageData data = short_example_data(job, 40);
    const auto model = make_model(job, data.vocabulary_size);
    const LanguageTask original(job, *model, data);
    AlteredTask task(original);
    task.training = std::make_shared<Masked>(data.training);
    task.given.shuffle = false;
    EXPECT_EQ(train(job, world, task), 0);
  });
  Outcome outcome{.bits = read_result(settings.log.dir)};
  std::ifstream file(settings.log.dir + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);)
    for (const char* key : {"loss", "grad_norm", "val_loss"})
      if (const auto object = nlohmann::json::parse(line); object.contains(key) && object[key].is_number())
        outcome.values.push_back(object[key]);
  return outcome;
}

/// Returns the sum of the losses of the first step's targets over their number, by means of single samples.
double first_loss(const TemporaryDirectory& directory) {
  const Job job = job_of({}, directory);
  const NoGrad no_grad;
  const LanguageData data = short_example_data(job, 40);
  const Masked masked(data.training);
  const auto model = make_model(job, data.vocabulary_size);
  double sum = 0.0, count = 0.0;
  for (const int64_t index : {0, 1, 2, 3}) {
    const Batch one = collect(masked, std::array{index}, cpu_stream());
    const auto targets = static_cast<double>(masked.counted_targets(index).value());
    sum += item(model->loss(one.inputs, one.targets, {}, 0)) * targets;
    count += targets;
  }
  return sum / count;
}

// The bound covers the rounding of sums in fp32. In bf16 it holds because a step rounds the gradients of all
// rows with one factor. Cuts into powers of two scale this factor by powers of two, which commute with
// rounding.
TEST(LossMean, IsThatOfAllTargetsForAnyCut) {
  const TemporaryDirectory directory;
  const std::vector<Cut> cuts = {{.accumulate = 2},
                                 {.accumulate = 4},
                                 {.replicas = 2, .batch_size = 2, .ranks = 2},
                                 {.replicas = 4, .batch_size = 1, .ranks = 3},
                                 {.replicas = 2, .batch_size = 2, .accumulate = 2}};
  for (const DType precision : {DType::f32, DType::bf16}) {
    const auto run = [&](const Cut& cut) {
      Job job = job_of(cut, directory);
      job.compute.precision = precision;
      return train_masked(cut, job);
    };
    const Outcome whole = run({});
    ASSERT_EQ(whole.values.size(), 11U) << "two values a step and the validation";
    if (precision == DType::f32) {
      EXPECT_NEAR(whole.values[0], first_loss(directory), 1e-6);
    }
    EXPECT_EQ(whole.values[4], 0.0) << "no target of the third step counts";
    EXPECT_EQ(whole.values[5], 0.0);
    for (const Cut& cut : cuts) {
      const Outcome parts = run(cut);
      ASSERT_EQ(parts.values.size(), whole.values.size());
      for (size_t i = 0; i < whole.values.size(); ++i)
        EXPECT_NEAR(parts.values[i], whole.values[i], 5e-6 * whole.values[i])
            << precision << ", " << cut.replicas << " x " << cut.accumulate << ", value " << i;
    }
  }
}

TEST(LossMean, HasTheSameBitsOnAnyRanksInAnyStage) {
  const TemporaryDirectory directory;
  Cut cut{.replicas = 3, .batch_size = 2, .accumulate = 2};
  const auto run = [&] {
    Job job = job_of(cut, directory);
    job.compute.precision = DType::f16;
    return train_masked(cut, job).bits;
  };
  const RunResult alone = run();
  for (const Shard shard : {Shard::none, Shard::optimizer, Shard::gradients, Shard::full}) {
    cut.ranks = 2 + static_cast<int>(shard) % 2;
    cut.shard = shard;
    EXPECT_EQ(run(), alone) << name(shard);
  }
}

// One micro-batch a step is its own mean. Several have a mean of means, which weights targets unequally.
TEST(LossMean, OfMicroBatchesIsAMeanOfMeans) {
  const TemporaryDirectory directory;
  const auto run = [&](const Cut& cut, LossMean mean) {
    Job job = job_of(cut, directory);
    job.text.loss_mean = mean;
    return train_masked(cut, job);
  };
  EXPECT_EQ(run({}, LossMean::micro_batch).bits, run({}, LossMean::tokens).bits);
  const Cut halves{.accumulate = 2};
  EXPECT_GT(std::abs(run(halves, LossMean::micro_batch).values[0] - run(halves, LossMean::tokens).values[0]),
            0.001);
}

// The hash is that of version 0.8.0, which had no data.loss_mean.
TEST(LossMean, OfMicroBatchesHasTheBitsOfEarlierVersions) {
  const TemporaryDirectory directory;
  std::string lines;
  for (size_t i = 0; i < 10; ++i)
    lines += concat(R"({"prompt": ")", i, R"(:", "answer": ")",
                    std::string("abcdefghijklmnopqrstuvwxyz").substr(0, 1 + 7 * i % 23), "\"}\n");
  Job job = tiny_config(directory, 3);
  const std::string path = directory / "lines.jsonl";
  write_text(path, lines);
  job.text.dataset = path;
  job.text.packing = false;
  job.text.train_split = 0.8;
  job.text.loss_mean = LossMean::micro_batch;
  job.batches.accumulate = 2;
  job.length.steps = 4;
  const QuietStderr quiet;
  const World world = World::alone();
  job = resolve(job, world);
  const LanguageData data = language_data(job, world, nullptr);
  const auto model = make_model(job, data.vocabulary_size);
  EXPECT_EQ(train(job, world, LanguageTask(job, *model, data)), 0);
  EXPECT_EQ(read_result(job.log.dir).parameters_hash, "11864bd8add12d8f");
}

}  // namespace
}  // namespace lockstep
