// SPDX-License-Identifier: Apache-2.0
// Whole runs with device = cuda, recorded and unrecorded, compared with the CPU. Some are resumed, and some
// have several ranks that share a GPU.
#include <cmath>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>

#include "lockstep/comm/heartbeat.h"
#include "lockstep/comm/local_communicator.h"
#include "lockstep/core/descriptor.h"
#include "lockstep/core/file.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"
#include "support/cuda.h"
#include "support/tiny_run.h"

namespace lockstep {
namespace {

/// Returns a configuration with few steps. The model is wider than on the CPU, so that matmuls and heads have
/// tiles.
Job tiny(const TemporaryDirectory& directory) {
  Job job = tiny_config(directory, 4);
  job.text.block_size = 16;
  job.model.n_layer = 2;
  job.model.n_embd = 64;
  job.compute.device = Device::cuda;
  job.length.steps = 8;
  job.dist.bucket_mib = 0.01;
  return job;
}

class OnGpu : public testing::Test {
 protected:
  void SetUp() override { ::setenv("XDG_CACHE_HOME", cache.c_str(), 1); }

  TemporaryDirectory directory;
  std::string cache = directory / "cache";
};

/// Tests without matmul tuning, so that no run needs the measurements of another one.
class TrainingOnGpu : public OnGpu {
 protected:
  void TearDown() override { EXPECT_FALSE(std::filesystem::exists(cache)); }
};

/// Makes replica 1 overflow in steps 3 and 5, counted from 0. Its loss stays finite, but its gradient does
/// not. A recorded step reads its own number on the device.
void plant_overflows(AlteredTask& task) {
  task.on_loss = [loss = task.on_loss](const Tensor& inputs, const Tensor& targets, const Context& context) {
    if (!context.training || context.sample % 8 / 2 != 1) return loss(inputs, targets, context);
    Context untold = context;
    untold.loss_scale = {};
    auto* number = reinterpret_cast<std::byte*>(const_cast<uint32_t*>(context.device_step));
    const auto memory = std::make_shared<Storage>(
        Storage{std::shared_ptr<std::byte>(std::shared_ptr<std::byte>(), number), 4, current_stream()});
    const Tensor step = convert(Tensor(memory, 0, {}, DType::i32), DType::f32);
    const auto away_from = [&](double other) { return subtract(step, full({}, other)); };
    const Tensor distance = multiply(away_from(3), away_from(5));
    const Tensor factor = divide(full({}, 1.0), add(multiply(distance, distance), full({}, 1e-37)));
    return multiply(loss(inputs, targets, untold), factor);
  };
}

/// Trains on ranks that are threads of this process, all on one GPU or on the CPU.
RunResult train_on(int ranks, const Job& given, int64_t lines = 20, bool overflows = false) {
  testing::internal::CaptureStderr();
  run_ranks(ranks, [&](Communicator& communicator) {
    if (given.compute.device == Device::cuda) set_current_stream(make_gpu_stream(0));
    const World world(communicator.shared_from_this());
    const Job job = resolve(given, world);
    const LanguageData data =
        has_examples(job) ? short_example_data(job, 60) : short_language_data(job, lines);
    const auto model = make_model(job, data.vocabulary_size);
    const LanguageTask original(job, *model, data);
    AlteredTask task(original);
    if (overflows) plant_overflows(task);
    EXPECT_EQ(train(job, world, task), 0);
    set_current_stream(cpu_stream());
  });
  testing::internal::GetCapturedStderr();
  return read_result(given.log.dir);
}

void expect_near(const RunResult& a, const RunResult& b, double bound) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  ASSERT_FALSE(a.losses.empty());
  for (size_t step = 0; step < b.losses.size(); ++step)
    EXPECT_NEAR(a.losses[step], b.losses[step], bound) << "step " << step + 1;
}

// The model, data, masks and order of replicas are the same, so only rounding differs. After eight steps with
// a learning rate of 1e-3, the difference is at most 1e-4 in a loss of about 3.
TEST_F(TrainingOnGpu, HasTheLossesOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  for (const char* family : {"gpt2", "llama"}) {
    const Job job = with_settings(tiny(directory), {{"model.family", family}});
    const RunResult on_gpu = train_on(1, job);
    EXPECT_LT(on_gpu.losses.at(7), on_gpu.losses.front());
    expect_near(on_gpu, train_on(1, with_settings(job, {{"train.device", "cpu"}})), 1e-4);
  }
}

// The run has masks, frozen parameters, groups and a schedule. The embedding has no gradient to sum.
TEST_F(TrainingOnGpu, TunesAsTheCpuDoes) {
  LOCKSTEP_NEEDS_GPU();
  Job job = tiny(directory);
  job.text.dataset = "examples.jsonl";
  job.optimizer.freeze = "transformer.w*, *.h.0.mlp.*, *.h.1.attn.c_attn.weight, *.ln_2.bias";
  job.optimizer.groups = "*.h.1.* lr_factor=0.5, *.bias weight_decay=0.3";
  job.schedule.schedule = Schedule::wsd;
  job.batches.accumulate = 2;
  const RunResult on_gpu = train_on(1, job);
  EXPECT_EQ(train_on(2, job), on_gpu);
  job.compute.device = Device::cpu;
  expect_near(on_gpu, train_on(1, job), 1e-4);
}

TEST_F(TrainingOnGpu, ARecordedStepHasAHeartbeatToo) {
  LOCKSTEP_NEEDS_GPU();
  Job job = tiny(directory);
  const auto beats_of = [&](int64_t steps) {
    const uint64_t before = heartbeat().beats.load();
    job.length.steps = steps;
    train_on(1, job);
    return heartbeat().beats.load() - before;
  };
  const uint64_t of_short_run = beats_of(4);
  EXPECT_GE(beats_of(12), of_short_run + 8) << "a supervisor would consider the run stuck";
}

TEST_F(TrainingOnGpu, InSixteenBitsStaysNear) {
  LOCKSTEP_NEEDS_GPU();
  Job job = tiny(directory);
  const RunResult in_32_bits = train_on(1, job);
  for (const DType precision : {DType::bf16, DType::f16}) {
    job.compute.precision = precision;
    const RunResult in_16_bits = train_on(1, job);
    ASSERT_EQ(in_16_bits.losses.size(), 8U);
    expect_near(in_16_bits, in_32_bits, 0.02);
    EXPECT_NE(in_16_bits.loss_bits, in_32_bits.loss_bits);
  }
}

TEST_F(TrainingOnGpu, NeitherRecordingNorRecomputationNorRanksShow) {
  LOCKSTEP_NEEDS_GPU();
  struct Way {
    bool is_recorded;
    const char* recompute;
    int ranks;
  };
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    Job job = with_settings(tiny(directory), {{"train.precision", precision}});
    // Without dropout, layer norms also compute the gradients of biases.
    if (job.compute.precision == DType::bf16) job.model.dropout = 0;
    if (job.compute.precision == DType::f16) job.model.family = "qwen";
    job.batches.accumulate = 2;
    job.length.steps = 4;
    const RunResult recorded = train_on(1, job);
    for (const Way& way : {Way{false, "none", 1}, Way{true, "attention", 1}, Way{true, "block", 2},
                           Way{false, "segments=2", 3}, Way{true, "segments=2", 1}}) {
      job.compute.graph = way.is_recorded;
      job = with_settings(job, {{"train.recompute", way.recompute}});
      EXPECT_EQ(train_on(way.ranks, job), recorded)
          << precision << ", " << way.recompute << ", " << way.ranks << " ranks";
    }
    job.compute.seed = 5;
    EXPECT_NE(train_on(1, job).loss_bits, recorded.loss_bits) << "these bits could not differ";
  }
}

TEST_F(TrainingOnGpu, RecordedStepsSkipWhatOverflows) {
  LOCKSTEP_NEEDS_GPU();
  Job job = tiny(directory);
  job.compute.precision = DType::f16;
  const RunResult recorded = train_on(1, job, 20, true);
  std::ifstream file(job.log.dir + "/metrics.jsonl");
  std::vector<int> skipped;
  for (std::string line; std::getline(file, line);)
    if (const auto object = nlohmann::json::parse(line); object.contains("skipped_steps"))
      skipped.push_back(object["skipped_steps"]);
  EXPECT_EQ(skipped, (std::vector<int>{0, 0, 0, 1, 1, 2, 2, 2}));
  job.compute.graph = false;
  EXPECT_EQ(train_on(1, job, 20, true), recorded);
  EXPECT_EQ(train_on(2, job, 20, true), recorded) << "2 ranks";
  job.dist.offload = Offload::optimizer;
  EXPECT_EQ(train_on(1, job, 20, true), recorded) << "updated on the host";
}

TEST_F(TrainingOnGpu, SchedulesDoNotShow) {
  LOCKSTEP_NEEDS_GPU();
  Job job = tiny(directory);
  job.length.steps = 4;
  std::vector<RunResult> runs;
  for_each_schedule([&] { runs.push_back(train_on(1, job)); });
  for (const RunResult& run : runs) EXPECT_EQ(run, runs.front());
}

TEST_F(TrainingOnGpu, RanksThatShareAGpuHaveTheBitsOfOne) {
  LOCKSTEP_NEEDS_GPU();
  const Job job = with_settings(tiny(directory), {{"dist.audit_every", "3"}});
  const RunResult alone = train_on(1, job);
  for (const int ranks : {2, 3, 4}) EXPECT_EQ(train_on(ranks, job), alone) << ranks << " ranks";
}

TEST_F(TrainingOnGpu, WhereTheOptimizerLiesDoesNotShow) {
  LOCKSTEP_NEEDS_GPU();
  struct Way {
    const char* precision;
    const char* offload;
    const char* shard;
    const char* recompute;
    int ranks;
  };
  std::map<std::string, RunResult> on_gpu;
  for (const Way& way :
       {Way{"fp32", "optimizer", "none", "none", 1}, Way{"fp32", "all", "none", "block", 1},
        Way{"fp32", "all", "full", "none", 2}, Way{"bf16", "optimizer", "gradients", "none", 2},
        Way{"bf16", "all", "none", "attention", 1}, Way{"fp16", "optimizer", "full", "none", 2},
        Way{"fp16", "all", "full", "block", 3}}) {
    Job job = with_settings(tiny(directory), {{"train.precision", way.precision}, {"dist.audit_every", "2"}});
    job.batches.accumulate = 2;
    job.length.steps = 4;
    job.model.dropout = 0.1;
    if (!on_gpu.contains(way.precision)) on_gpu[way.precision] = train_on(1, job);
    job = with_settings(
        job, {{"dist.offload", way.offload}, {"dist.shard", way.shard}, {"train.recompute", way.recompute}});
    EXPECT_EQ(train_on(way.ranks, job), on_gpu[way.precision])
        << way.precision << ", offload " << way.offload << ", shard " << way.shard << ", " << way.ranks
        << " ranks";
  }
}

TEST_F(TrainingOnGpu, GoesOnWithAndWithoutOffloading) {
  LOCKSTEP_NEEDS_GPU();
  Job job = tiny(directory);
  job.compute.precision = DType::bf16;
  const RunResult undisturbed = train_on(1, job);
  job.snapshots.path = directory / "snapshots";
  job.snapshots.resume = Resume::if_possible;
  job.schedule.decay_steps = job.length.steps;
  for (const auto& [steps, offload, ranks] : {std::tuple(2, Offload::optimizer, 1),
                                              {4, Offload::all, 2},
                                              {6, Offload::none, 2},
                                              {8, Offload::all, 1}}) {
    job.length.steps = steps;
    job.dist.offload = offload;
    EXPECT_EQ(train_on(ranks, job).losses.size(), static_cast<size_t>(steps));
  }
  const RunResult last = read_result(job.log.dir);
  EXPECT_EQ(last.loss_bits, undisturbed.loss_bits);
  EXPECT_EQ(last.parameters_hash, undisturbed.parameters_hash);
}

TEST_F(TrainingOnGpu, GoesOnFromASnapshotWithTheSameBits) {
  LOCKSTEP_NEEDS_GPU();
  Job job = tiny(directory);
  job.compute.precision = DType::bf16;
  const RunResult undisturbed = train_on(1, job);
  job.snapshots.path = directory / "snapshots";
  // A snapshot is due at every step by the clock. The next step is already in progress when a step's result
  // is read.
  job.snapshots.every_minutes = 1e-9;
  job.snapshots.keep = 10;
  EXPECT_EQ(train_on(1, job), undisturbed) << "snapshots changed the bits";
  job.snapshots.resume = Resume::if_possible;
  std::filesystem::remove_all(directory / "snapshots/step-00000008");
  EXPECT_EQ(train_on(2, job), undisturbed) << "resumed on two ranks from the one before";
}

// 28 samples per replica make five batches of 5 and one of 3. The last one is not recorded.
TEST_F(TrainingOnGpu, ShortBatchesDoNotShow) {
  LOCKSTEP_NEEDS_GPU();
  constexpr int64_t lines = 5;
  Job job = tiny(directory);
  job.text.train_split = 0.8;
  job.batches.batch_size = 5;
  const RunResult recorded = train_on(1, job, lines);
  job.compute.graph = false;
  EXPECT_EQ(train_on(1, job, lines), recorded);
  job.compute.graph = true;
  job.snapshots.path = directory / "snapshots";
  job.snapshots.every_steps = 5;
  job.snapshots.keep = 3;
  EXPECT_EQ(train_on(1, job, lines), recorded);
  job.snapshots.resume = Resume::if_possible;
  std::filesystem::remove_all(directory / "snapshots/step-00000008");
  EXPECT_EQ(train_on(1, job, lines), recorded) << "resumed with the short batch first";
  job.compute.device = Device::cpu;
  job.snapshots.path = NamedPlace::none;
  job.snapshots.resume = Resume::never;
  const RunResult on_cpu = train_on(1, job, lines);
  expect_near(recorded, on_cpu, 1e-4);
}

// The order of additions differs from that of all logits at once. The losses are near, and the bits differ.
TEST_F(TrainingOnGpu, PiecesOfLogitsTrain) {
  LOCKSTEP_NEEDS_GPU();
  Job job = tiny(directory);
  job.length.steps = 4;
  const RunResult whole = train_on(1, job);
  job.compute.logit_rows = 12;
  const RunResult in_pieces = train_on(1, job);
  expect_near(in_pieces, whole, 1e-4);
  EXPECT_NE(in_pieces.parameters_hash, whole.parameters_hash);
}

TEST_F(TrainingOnGpu, ARunThatDivergesSaysSo) {
  LOCKSTEP_NEEDS_GPU();
  Job job = tiny(directory);
  job.schedule.learning_rate = 1e30;
  job.optimizer.grad_clip = 0.0;
  try {
    train_on(1, job);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    testing::internal::GetCapturedStderr();
    EXPECT_NE(std::string(error.what()).find("lower train.learning_rate"), std::string::npos) << error.what();
  }
}

/// Tests of runs that compute with the fastest algorithms, as measured by the first run.
class TunedOnGpu : public OnGpu {
 protected:
  Job tuned(int64_t steps) const {
    Job job = tiny(directory);
    job.compute.tune_matmul = true;
    job.length.steps = steps;
    job.schedule.decay_steps = 8;
    return job;
  }
  /// Returns the only file of plans. It has a lock file next to it.
  std::string plans_file() const {
    for (const auto& entry : std::filesystem::directory_iterator(cache + "/lockstep"))
      if (entry.path().extension() == ".txt") return entry.path();
    throw Error("there is no file of plans in " + cache);
  }
  /// Returns the text about plans in the log of the last run.
  std::string said(const Job& job) const {
    const std::string log = read_text(job.log.dir + "/rank0.log"), about = "tuned matmul plans";
    const size_t at = log.rfind(about);
    return at == std::string::npos ? "" : log.substr(at, log.find('\n', at) - at);
  }
};

TEST_F(TunedOnGpu, TheFileDecidesBitsUntilASnapshotDoes) {
  LOCKSTEP_NEEDS_GPU();
  Job job = tuned(4);
  job.snapshots.path = directory / "snapshots";
  const RunResult first = train_on(1, job);
  const std::string plans = read_text(plans_file()), words = said(job);
  EXPECT_NE(words.find(", kept in " + plans_file()), std::string::npos) << words;
  Job another = tuned(8);
  another.log.dir = directory / "another";
  const RunResult undisturbed = train_on(1, another);
  EXPECT_EQ(said(another), words) << "the plans must have the same hash";
  EXPECT_EQ(read_text(plans_file()), plans);
#if defined(LOCKSTEP_EMULATED)
  // Every product gets another algorithm of the emulated cuBLASLt. Algorithm 2 splits k differently from all
  // others.
  std::string others = plans;
  const std::string id = "words=0000000";
  for (size_t at = others.find(id); at != std::string::npos; at = others.find(id, at + 1))
    others[at + id.size()] = others[at + id.size()] == '2' ? '1' : '2';
  write_file(plans_file(), others);
  EXPECT_NE(train_on(1, another).parameters_hash, undisturbed.parameters_hash);
  EXPECT_NE(said(another), words);
#endif
  job.length.steps = 8;
  job.snapshots.resume = Resume::if_possible;
  EXPECT_EQ(train_on(2, job).parameters_hash, undisturbed.parameters_hash);
}

TEST_F(TunedOnGpu, TheFileIsOneRunsAtATime) {
  LOCKSTEP_NEEDS_GPU();
  Job job = tuned(1);
  train_on(1, job);
  const std::string file = plans_file();
  const Descriptor lock(::open((file + ".lock").c_str(), O_RDWR));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  job.dist.timeout_s = 0.2;
  try {
    train_on(1, job);
    FAIL() << "two runs used the file at the same time";
  } catch (const UserError& error) {
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_NE(text.find("waiting for another run, which is tuning into " + file), std::string::npos) << text;
    EXPECT_NE(std::string(error.what()).find(file), std::string::npos) << error.what();
  }
  ASSERT_EQ(::flock(lock.get(), LOCK_UN), 0);
  write_file(file, "damaged");
  job.dist.timeout_s = 60.0;
  train_on(1, job);
  EXPECT_NE(said(job).find(", kept in " + file), std::string::npos) << "a damaged file must be replaced";
  EXPECT_NE(read_text(file), "damaged");
}

}  // namespace
}  // namespace lockstep
