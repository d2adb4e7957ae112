// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "lockstep/tensor/safetensors.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

const std::string sources = std::string(LOCKSTEP_SOURCE_DIR) + "/apps/tutorial/";

class Tutorial : public testing::Test {
 protected:
  /// Returns the command of one step, which writes its checkpoint to the test's directory.
  std::string step(const std::string& name, const std::string& arguments,
                   const std::string& launcher = "") const {
    return "cd " + directory_.path() + " && " + launcher + program(name) + " " + arguments;
  }

  Outcome run(const std::string& command) const {
    Outcome outcome = run_command(command);
    EXPECT_EQ(outcome.exit_code, 0) << command << "\n" << outcome.errors;
    return outcome;
  }

  std::string parameters_after(const std::string& command) const {
    std::filesystem::remove(checkpoint());
    run(command);
    return read_text(checkpoint());
  }

  std::string checkpoint() const { return directory_ / "checkpoint.safetensors"; }

  TemporaryDirectory directory_;
};

int64_t lines_of(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

bool has(const Outcome& outcome, const std::string& line) {
  return outcome.out.find(line + "\n") != std::string::npos;
}

/// Returns the numbers after "Loss: ", in order.
std::vector<double> losses(const std::string& text) {
  std::vector<double> values;
  const std::string mark = "Loss: ";
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1))
    values.push_back(std::stod(text.substr(at + mark.size())));
  return values;
}

TEST_F(Tutorial, OneDeviceLearnsAndSaves) {
  const Outcome outcome = run(step("1_single_device", "12 5"));
  for (int epoch = 0; epoch < 12; ++epoch) {
    EXPECT_TRUE(has(outcome, "[CPU0] Epoch " + std::to_string(epoch) + " | Batchsize: 32 | Steps: 64"));
    const bool saves = epoch % 5 == 0 || epoch == 11;
    const std::string saved =
        "Epoch " + std::to_string(epoch) + " | Training checkpoint saved at checkpoint.safetensors";
    EXPECT_EQ(has(outcome, saved), saves) << epoch;
  }
  // The targets are uniform noise. A model's best loss is their variance, 1/12.
  const std::vector<double> loss = losses(outcome.out);
  ASSERT_EQ(loss.size(), 12U);
  EXPECT_LT(loss.back(), loss.front());
  EXPECT_LT(loss.back(), 1.1 / 12);

  const SafeTensors saved = load_safetensors(checkpoint());
  ASSERT_EQ(saved.tensors.size(), 2U);
  EXPECT_EQ(saved.tensors[0].tensor.size() + saved.tensors[1].tensor.size(), 21);
}

TEST_F(Tutorial, EveryRankSpeaksAndTheFirstSaves) {
  const Outcome outcome = run(step("2_multi_device", "3 1 --batch_size 16 --ranks 3 --replicas 4"));
  for (const char* rank : {"0", "1", "2"})
    EXPECT_TRUE(has(outcome, std::string("[CPU") + rank + "] Epoch 2 | Batchsize: 16 | Steps: 32"))
        << outcome.out;
  // Per epoch the ranks print three lines. The first rank also prints a loss and a checkpoint.
  EXPECT_EQ(lines_of(outcome.out), 3 * (3 + 2)) << outcome.out;
}

TEST_F(Tutorial, ReplicasFixTheBits) {
  const std::string one = parameters_after(step("2_multi_device", "3 1 --replicas 4 --ranks 1"));
  EXPECT_FALSE(one.empty());
  for (const char* ranks : {"2", "3", "4"})
    EXPECT_EQ(parameters_after(step("2_multi_device", std::string("3 1 --replicas 4 --ranks ") + ranks)), one)
        << ranks << " ranks";
  EXPECT_NE(parameters_after(step("2_multi_device", "3 1 --replicas 3 --ranks 1")), one);
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  EXPECT_EQ(parameters_after(step("2_multi_device", "3 1 --replicas 4", mpirun(2))), one) << "mpirun";
}

TEST_F(Tutorial, OneReplicaIsOneDevice) {
  EXPECT_EQ(parameters_after(step("2_multi_device", "3 1 --ranks 1")),
            parameters_after(step("1_single_device", "3 1")));
}

/// The tutorial steps that survive failures, 3_fault_tolerant and 4_multi_node, on two ranks.
class FaultTolerantTutorial : public Tutorial, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
    // The program has its own name here, so that its ranks can be found and killed.
    std::filesystem::create_symlink(program(GetParam()), own_program());
  }

  std::string own_program() const { return directory_ / "program"; }
  std::string snapshot() const { return directory_ / "snapshot.safetensors"; }
  std::string on_two_ranks(const std::string& arguments) const {
    return "cd " + directory_.path() + " && " + mpirun(2) + own_program() + " " + arguments;
  }

  /// Trains until two snapshots are written, then kills one of the ranks.
  Outcome run_and_kill(const std::string& arguments) const {
    const std::string rank = "pgrep -o -f '^" + own_program() + "'";
    return run_command(
        "cd " + directory_.path() + "\n" + mpirun(2) + own_program() + " " + arguments + " >out & job=$!\n" +
        // Watches the snapshot itself, because mpirun's output may lag.
        "until grep -aqE '\"epochs_run\":\"(8|[1-9][0-9]+)\"' snapshot.safetensors 2>/dev/null || "
        "! kill -0 $job; do sleep 0.01; done\n" +
        "kill -KILL $(" + rank + ")\nwait $job\ncode=$?\ncat out\nexit $code");
  }
};

/// Returns the number after the first `mark`, or -1 if there is none.
int number_after(const std::string& text, const std::string& mark) {
  const size_t at = text.find(mark);
  return at == std::string::npos ? -1 : std::stoi(text.substr(at + mark.size()));
}

TEST_P(FaultTolerantTutorial, KilledAndStartedAgainItEndsAsIfNothingHadHappened) {
  constexpr int epochs = 1500;
  const std::string arguments = std::to_string(epochs) + " 7 --replicas 4";
  run(on_two_ranks(arguments));
  const std::string undisturbed = read_text(snapshot());
  ASSERT_FALSE(undisturbed.empty());
  std::filesystem::remove(snapshot());

  const Outcome killed = run_and_kill(arguments);
  ASSERT_NE(killed.exit_code, 0) << "the run ended before it could be killed\n" << killed.out;
  const int epochs_run = std::stoi(load_safetensors(snapshot()).metadata.at("epochs_run"));
  ASSERT_GE(epochs_run, 8);
  ASSERT_LT(epochs_run, epochs);

  const Outcome resumed = run(on_two_ranks(arguments));
  EXPECT_EQ(number_after(resumed.out, "Resuming training from snapshot at Epoch "), epochs_run);
  EXPECT_EQ(number_after(resumed.out, "] Epoch "), epochs_run) << "an epoch was repeated or left out";
  EXPECT_TRUE(read_text(snapshot()) == undisturbed) << "the resumed run has other parameters or velocities";
}

TEST_P(FaultTolerantTutorial, ResumesOnAnotherNumberOfRanks) {
  run(on_two_ranks("6 2 --replicas 4"));
  const std::string undisturbed = read_text(snapshot());
  std::filesystem::remove(snapshot());
  run(on_two_ranks("3 2 --replicas 4"));
  const Outcome outcome =
      run("cd " + directory_.path() + " && " + mpirun(3) + own_program() + " 6 2 --replicas 4");
  EXPECT_TRUE(has(outcome, "Resuming training from snapshot at Epoch 3")) << outcome.out;
  EXPECT_TRUE(has(outcome, "Epoch 5 | Training snapshot saved at snapshot.safetensors")) << outcome.out;
  EXPECT_TRUE(read_text(snapshot()) == undisturbed);
}

TEST_P(FaultTolerantTutorial, AFinishedRunIsNotRunAgain) {
  run(on_two_ranks("3 2"));
  const Outcome again = run(on_two_ranks("3 2"));
  EXPECT_EQ(again.out, "Resuming training from snapshot at Epoch 3\n");
}

TEST_P(FaultTolerantTutorial, RefusesADamagedSnapshot) {
  write_text(snapshot(), "not a snapshot");
  const Outcome outcome = run_command(on_two_ranks("3 2"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.errors.find("snapshot.safetensors"), std::string::npos) << outcome.errors;

  // A file that an earlier step of the tutorial wrote is valid, but it is no snapshot.
  run(step("1_single_device", "1 1"));
  std::filesystem::rename(checkpoint(), snapshot());
  const Outcome other = run_command(on_two_ranks("3 2"));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.errors.find("snapshot.safetensors has no tensor"), std::string::npos) << other.errors;
}

INSTANTIATE_TEST_SUITE_P(Steps, FaultTolerantTutorial, testing::Values("3_fault_tolerant", "4_multi_node"));

TEST_F(Tutorial, SeveralNodesNameTheirRanksAndHosts) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const Outcome outcome = run(step("4_multi_node", "1 1", mpirun(2)));
  const Outcome host = run_command("uname -n");
  const std::string name = host.out.substr(0, host.out.find('\n'));
  for (const std::string rank : {"0", "1"})
    EXPECT_TRUE(
        has(outcome, "[CPU" + rank + " = " + name + ":" + rank + "] Epoch 0 | Batchsize: 32 | Steps: 32"))
        << outcome.out;
}

TEST_F(Tutorial, LessMemoryShowsInTheBitsWhereItIsAnotherSum) {
  const auto after = [this](const std::string& arguments) {
    return parameters_after(step("5_less_memory", "1 --batch_size 1024 " + arguments));
  };
  const std::string plain = after("");
  EXPECT_FALSE(plain.empty());
  EXPECT_EQ(after("--segments 5"), plain);
  EXPECT_NE(after("--bf16 1"), plain);
  const std::string in_parts = after("--micro_batches 4");
  EXPECT_NE(in_parts, plain);
  EXPECT_EQ(after("--micro_batches 4 --segments 16 --replicas 1"), in_parts);
}

/// Returns the plan's total in MiB.
double planned(const Outcome& outcome) {
  const std::string mark = "Plan | total: ";
  const size_t at = outcome.out.find(mark);
  return at == std::string::npos ? 0.0 : std::stod(outcome.out.substr(at + mark.size()));
}

TEST_F(Tutorial, LessMemoryIsPlanned) {
  const double plain = planned(run(step("5_less_memory", "1 --plan 1")));
  EXPECT_GT(plain, 64.0);
  for (const char* change : {"--micro_batches 8", "--segments 16", "--bf16 1"})
    EXPECT_LT(planned(run(step("5_less_memory", std::string("1 --plan 1 ") + change))), 0.7 * plain)
        << change;
}

TEST_F(Tutorial, EveryStageOfShardingHasTheSameModel) {
  const auto after = [this](const std::string& arguments) {
    return parameters_after(step("6_sharding", "1 --batch_size 64 --replicas 4 " + arguments));
  };
  const std::string alone = after("--ranks 1");
  ASSERT_EQ(from_safetensors(alone, "").tensors.size(), 36u);
  for (const char* shard : {"none", "optimizer", "gradients", "full"})
    EXPECT_TRUE(after(std::string("--ranks 3 --shard ") + shard) == alone) << shard;
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  EXPECT_TRUE(parameters_after(
                  step("6_sharding", "1 --batch_size 64 --replicas 4 --shard full", mpirun(2))) == alone);
}

TEST_F(Tutorial, AShardedLoopIsPlannedForRanksThatAreNotThere) {
  const auto plan = [this](const std::string& arguments) {
    return planned(run(step("6_sharding", "1 --replicas 8 " + arguments)));
  };
  const double whole = plan("--plan 1"), full = plan("--plan 8 --shard full");
  EXPECT_GT(whole, 64.0) << "four times 16 MiB";
  EXPECT_LT(full, 0.3 * whole);
  EXPECT_LT(plan("--plan 8 --shard gradients"), plan("--plan 8 --shard optimizer"));
  EXPECT_LT(full, plan("--plan 2 --shard full"));
  EXPECT_FALSE(std::filesystem::exists(checkpoint())) << "nothing was trained";
}

TEST_F(Tutorial, RefusesBadArguments) {
  for (const char* arguments : {"many", "3 1 2", "3 1 --batch_size 0", "--epochs 3", "99999999999"})
    for (const char* name : {"1_single_device", "2_multi_device", "3_fault_tolerant", "4_multi_node",
                             "5_less_memory", "6_sharding"}) {
      const Outcome outcome = run_command(step(name, arguments));
      EXPECT_EQ(outcome.exit_code, 2) << name << " " << arguments;
      EXPECT_TRUE(outcome.errors.starts_with("error: ")) << outcome.errors;
    }
  EXPECT_EQ(run_command(step("1_single_device", "--ranks 2")).exit_code, 2);
  EXPECT_EQ(run_command(step("4_multi_node", "--ranks 2")).exit_code, 2);
  EXPECT_EQ(run_command(step("2_multi_device", "1 1 --ranks 4 --replicas 3")).exit_code, 2);
  EXPECT_EQ(run_command(step("5_less_memory", "--micro_batches 3")).exit_code, 2);
  EXPECT_EQ(run_command(step("6_sharding", "--shard most")).exit_code, 2);
  EXPECT_EQ(run_command(step("2_multi_device", "--help")).exit_code, 0);
  EXPECT_TRUE(run_command(step("2_multi_device", "--version")).out.starts_with("Lockstep 0."));
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const Outcome outcome = run_command(step("2_multi_device", "1 1 --ranks 3", mpirun(2)));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.errors;
  EXPECT_NE(outcome.errors.find("3 ranks were requested, but the launcher started 2"), std::string::npos);
}

/// Two adjacent steps, and how many lines may differ between them.
struct Stair {
  std::string from;
  std::string to;
  int64_t most_lines = 0;
};

const std::vector<Stair> stairs = {{"1_single_device.cpp", "2_multi_device.cpp", 12},
                                   {"2_multi_device.cpp", "3_fault_tolerant.cpp", 24},
                                   {"3_fault_tolerant.cpp", "4_multi_node.cpp", 8},
                                   {"2_multi_device.cpp", "5_less_memory.cpp", 52},
                                   {"2_multi_device.cpp", "6_sharding.cpp", 60}};

TEST(TutorialSources, AreShortAndDifferInWhatTheStepTeaches) {
  for (const Stair& stair : stairs) {
    EXPECT_LT(lines_of(read_text(sources + stair.to)), 100) << stair.to;
    const Outcome outcome = run_command("diff " + sources + stair.from + " " + sources + stair.to);
    ASSERT_EQ(outcome.exit_code, 1) << outcome.errors;
    int64_t before = 0;
    int64_t after = 0;
    for (size_t at = 0; at < outcome.out.size(); at = outcome.out.find('\n', at) + 1) {
      before += outcome.out[at] == '<' ? 1 : 0;
      after += outcome.out[at] == '>' ? 1 : 0;
    }
    EXPECT_GT(after, 0);
    EXPECT_LE(std::max(before, after), stair.most_lines) << outcome.out;
  }
}

}  // namespace
}  // namespace lockstep
