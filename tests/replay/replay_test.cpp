// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lockstep/kernels/fold.h"
#include "lockstep/movement/reduction_plan.h"
#include "lockstep/parameters/gradient_norm.h"
#include "lockstep/replay/bundle.h"
#include "lockstep/replay/describe_step.h"
#include "lockstep/replay/replay_step.h"
#include "lockstep/tensor/autograd.h"
#include "lockstep/tensor/create.h"
#include "tests/replay/replay_support.h"

namespace lockstep {
namespace {

/// Folds the gradients of all replicas in the order of the tree and returns the norm of their mean. It has
/// the bits of the record only if every element of every replica has.
double norm_of_mean(const RunTasks& tasks, const std::vector<ReplicaTrace>& replicas) {
  const auto task = tasks.make();
  ParameterSpace space(task->parameters(), {.seed = 1, .group = task->group_rule()});
  space.gradients.bind(full({space.layout.trainable_elements()}, 0.0));
  const ReductionPlan plan(static_cast<int>(replicas.size()), 1, static_cast<int>(replicas.size()), 0,
                           Execution::ranges, true);
  for (size_t p = 0; p < replicas[0].gradients.size(); ++p) {
    Fold fold{.inputs = {}, .program = plan.rounds[0].folds[0].program, .y = {}};
    for (const ReplicaTrace& replica : replicas) fold.inputs.push_back(replica.gradients[p].tensor.view());
    for (const Parameter& parameter : space.layout.parameters())
      if (parameter.name == replicas[0].gradients[p].name)
        fold.y = leaf_gradient(parameter.tensor).buffer.view();
    fold.scale = 1.0f / static_cast<float>(replicas.size());
    launch(cpu_stream(), fold);
  }
  for (const Parameter& parameter : space.layout.parameters())
    leaf_gradient(parameter.tensor).is_written = true;
  return gradient_norm(space);
}

void expect_all_replicas_of(const std::string& folder, int64_t step) {
  const RecordedRun run = read_run(folder);
  const World world = World::alone();
  const auto tasks = open_tasks(run, {}, world);
  const StepReplay replay = replay_step(run, *tasks, world, {.step = step, .replica = -1});
  EXPECT_TRUE(replay.is_equal());
  ASSERT_EQ(static_cast<int64_t>(replay.traced.size()), tasks->job().dist.replicas);
  EXPECT_EQ(norm_of_mean(*tasks, replay.traced), run.step(step)->gradient_norm);
}

TEST(Replay, HasTheBitsOfEveryReplicaOfEightRanks) {
  if (!has_mpirun()) GTEST_SKIP() << "needs mpirun";
  const TemporaryDirectory directory;
  const std::string settings = "dist.replicas=8 train.batch_size=2 dist.shard=full";
  train_tiny(directory / "run", settings, mpirun(8));
  const RecordedRun run = read_run(directory / "run");
  EXPECT_EQ(run.snapshot_before(11)->state().step, 8);
  expect_all_replicas_of(directory / "run", 11);
}

class ReplayPrecision : public testing::TestWithParam<const char*> {};

TEST_P(ReplayPrecision, HasTheBitsOfTheRun) {
  const TemporaryDirectory directory;
  train_tiny(directory / "run", std::string("train.recompute=block train.precision=") + GetParam());
  const RecordedRun run = read_run(directory / "run");
  const World world = World::alone();
  const auto tasks = open_tasks(run, {}, world);
  for (const int64_t step : {1, 7}) {
    const StepReplay replay = replay_step(run, *tasks, world, {.step = step, .replica = 2});
    EXPECT_TRUE(replay.is_equal()) << step;
    EXPECT_EQ(replay.traced[0].inputs.size(), 2U);
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, ReplayPrecision, testing::Values("fp32", "bf16", "fp16"));

/// A run to replay, trained once for all tests.
class ReplayProgram : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new TemporaryDirectory();
    train_tiny(run());
  }
  static void TearDownTestSuite() { delete std::exchange(directory_, nullptr); }
  static std::string run() { return *directory_ / "run"; }
  static Outcome replay(const std::string& arguments) { return run_program_named("replay", arguments); }
  const TemporaryDirectory own_;

 private:
  static TemporaryDirectory* directory_;
};
TemporaryDirectory* ReplayProgram::directory_ = nullptr;

TEST_F(ReplayProgram, ShowsTheBatchTheLossesAndTheGradients) {
  const Outcome outcome = replay(run() + " --step 6 --replica 1");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  for (const char* part :
       {"step 6: 1 step before it computed again from the snapshot of step 4", "the bits of the run",
        "replica 1, micro-batch 1, epoch 0: loss ", "  sample 1: \"",
        "the largest losses of 16 tokens:", "transformer.h.0.attn.c_attn.weight", "forward: causal_attention",
        "backward: the gradient of input 0 of linear (transformer.h.0.attn.c_attn.weight)"})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
}

TEST_F(ReplayProgram, DumpsWhatItComputes) {
  const std::string file = own_ / "step.safetensors";
  const Outcome outcome = replay(run() + " --step 6 --replica 1 --json --dump " + file);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["replicas"][0]["micro_batches"][1]["token_losses"].size(), 16U);
  double sum = 0.0;
  for (const double loss : json["replicas"][0]["micro_batches"][1]["token_losses"]) sum += loss;
  EXPECT_NEAR(sum / 16, json["replicas"][0]["micro_batches"][1]["loss"], 1e-5);
  const SafeTensors tensors = load_safetensors(file);
  const auto has = [&tensors](const std::string& name) {
    return std::ranges::any_of(tensors.tensors, [&name](const NamedTensor& t) { return t.name == name; });
  };
  EXPECT_TRUE(has("replica.1.micro_batch.0.inputs"));
  EXPECT_TRUE(has("replica.1.micro_batch.1.losses"));
  EXPECT_TRUE(has("replica.1.gradient.transformer.wte.weight"));
  EXPECT_TRUE(has("before.transformer.wte.weight"));
  EXPECT_TRUE(has("after.transformer.wte.weight"));
}

TEST_F(ReplayProgram, ABundleHasTheBitsInAnotherFolder) {
  const std::string bundle = own_ / "bundle", moved = own_ / "moved";
  EXPECT_EQ(replay(run() + " --step 7 --replica 2 --micro-batch 1 --bundle " + bundle).exit_code, 0);
  std::filesystem::rename(bundle, moved);
  Outcome outcome = run_command("cd / && unset LOCKSTEP_DATA_DIR && " + program("replay") + " " + moved);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.out.find("replica 2, micro-batch 1: the bits of the bundle"), std::string::npos)
      << outcome.out;
  // A build that computes something else.
  outcome = run_command("LOCKSTEP_TEST_PLANT=layer_norm " + program("planted/replay") + " " + moved);
  EXPECT_EQ(outcome.exit_code, 1) << outcome.errors;
  EXPECT_NE(outcome.out.find("NOT the bits of the bundle, in "), std::string::npos) << outcome.out;
  for (const char* file : {"model.safetensors", "batch.safetensors", "config.ini", "bundle.json"}) {
    const std::string text = read_text(moved + "/" + file);
    write_text(moved + "/" + file, text.substr(0, text.size() / 2));
    outcome = replay(moved);
    EXPECT_EQ(outcome.exit_code, 2) << file;
    EXPECT_NE(outcome.errors.find(file), std::string::npos) << outcome.errors;
    write_text(moved + "/" + file, text);
  }
  EXPECT_EQ(replay(run() + " --step 7 --bundle " + moved).exit_code, 2);
}

TEST_F(ReplayProgram, ReplaysTheTutorialsModel) {
  const std::string folder = own_ / "mlp", bundle = own_ / "bundle";
  EXPECT_EQ(run_command(program("train_mlp") + " 2 1 dist.replicas=4 log.dir=" + folder).exit_code, 0);
  const Outcome outcome = replay(folder + " --step 20 --from-start --replica 3 --bundle " + bundle);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.out.find(" -> "), std::string::npos) << outcome.out;
  EXPECT_EQ(replay(bundle).exit_code, 0);
}

TEST_F(ReplayProgram, RefusesWhatItCannotReach) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {run(), "--step is missing: "},
      {run() + " --step 13", " has no step 13: its steps are 1 to 12"},
      {run() + " --step 3",
       "step 3 needs a snapshot of an earlier step, and the oldest is that of step 4: "
       "--from-start computes 2 steps again"},
      {run() + " --step 6 --replica 3", "--replica 3: the run has the replicas 0 to 2"},
      {run() + " --step 6 --micro-batch 2", "--micro-batch 2: a replica has the micro-batches 0 to 1"},
      {run() + " --step 6 train.seed=7", "train.seed fixes the bits of "},
      {run() + " --step 6 data.dataset=" + run() + "/config.ini", "the data are not those of "},
      {run() + " --step 6 --bundle " + run(), " has files already"},
      {own_.path() + " --step 6", " is not the folder of a run: it has no metrics.jsonl"}};
  for (const auto& [arguments, message] : cases) {
    const Outcome outcome = replay(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_NE(outcome.errors.find(message), std::string::npos) << outcome.errors;
    EXPECT_EQ(outcome.errors.find('\n'), outcome.errors.size() - 1) << outcome.errors;
  }
  EXPECT_EQ(replay(run() + " --step 3 --from-start").exit_code, 0);
}

}  // namespace
}  // namespace lockstep
