// SPDX-License-Identifier: Apache-2.0
// Ends and second starts of whole programs.

#include <filesystem>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "snapshot/snapshot.h"
#include "tests/support/program.h"
#include "tests/support/run_result.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class Resume : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  }

  std::string train(const std::string& run, const std::string& more) const {
    return program("train_gpt") +
           " data.dataset=sample train.threads=1 train.eval_every=-1 log.dir=" + (directory_ / run) + " " +
           more;
  }

  TemporaryDirectory directory_;
};

TEST_F(Resume, ARunThatNobodyGaveReplicasGoesOnWithFewerRanksUnderLockrun) {
#if defined(__SANITIZE_ADDRESS__)
  const int steps = 400;
#else
  const int steps = 1600;  // so that it is not over before it is killed
#endif
  const std::string settings =
      "data.block_size=16 model.n_layer=1 model.n_head=2 model.n_embd=16 train.batch_size=1 "
      "snapshot.every_steps=20 train.steps=" +
      std::to_string(steps);
  const Outcome undisturbed = run_command(mpirun(4) + train("undisturbed", settings));
  ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.errors;
  const std::string run = directory_ / "two", metrics = run + "/metrics.jsonl";
  run_command(mpirun(4) + train("two", settings) + " & job=$!; while kill -0 $job && [ $(cat " + metrics +
              " | wc -l) -lt 60 ]; do sleep 0.01; done; pkill -KILL -f log.dir=" + run + "; wait $job");
  ASSERT_TRUE(read_result(run).parameters_hash.empty()) << "it was over before it was killed";
  fs::copy(run, directory_ / "three", fs::copy_options::recursive);
  for (const auto& [ranks, name] : {std::pair(2, "two"), std::pair(3, "three")}) {
    const Outcome resumed = run_command(lockrun(ranks) + train(name, settings));
    ASSERT_EQ(resumed.exit_code, 0) << resumed.errors;
    EXPECT_NE(resumed.errors.find("dist.replicas = 4"), std::string::npos) << resumed.errors;
    EXPECT_NE(resumed.errors.find("resuming after step"), std::string::npos) << resumed.errors;
    EXPECT_EQ(read_bits(directory_ / name), read_bits(directory_ / "undisturbed")) << ranks << " ranks";
  }
}

TEST_F(Resume, ARankThatIsKilledWhileAllWriteLeavesSnapshotsThatLoad) {
  const std::string settings =
      "data.block_size=16 model.n_layer=2 model.n_head=2 model.n_embd=32 train.batch_size=1 dist.replicas=4 "
      "train.steps=400 ";
  const Outcome undisturbed = run_command(train("undisturbed", settings + "snapshot.path=none"));
  ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.errors;
  const std::string often = settings + "snapshot.every_steps=1 snapshot.keep=3";
  const std::string run = directory_ / "run", metrics = run + "/metrics.jsonl";
  for (int victim = 0; victim < 3; ++victim) {
    run_command(mpirun(3) + train("run", often) + " & job=$!; while kill -0 $job && [ $(cat " + metrics +
                " | wc -l) -lt " + std::to_string(40 * victim + 40) +
                " ]; do sleep 0.01; done; for rank in $(pgrep -f log.dir=" + run +
                "); do grep -qz OMPI_COMM_WORLD_RANK=" + std::to_string(victim) +
                " /proc/$rank/environ && kill -KILL $rank; done; wait $job");
    ASSERT_TRUE(read_result(run).parameters_hash.empty()) << "it was over before it was killed";
    const SnapshotStore snapshots(run + "/snapshots", 3);
    EXPECT_TRUE(snapshots.newest([&](const std::string& report) {
      ADD_FAILURE() << victim << ": " << report;
    })) << victim;
  }
  const Outcome resumed = run_command(mpirun(2) + train("run", often));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.errors;
  EXPECT_EQ(read_bits(run), read_bits(directory_ / "undisturbed"));
  for (const auto& entry : fs::directory_iterator(run + "/snapshots"))
    EXPECT_NE(entry.path().extension(), ".tmp") << "what a killed run left is still there";
}

TEST_F(Resume, ATrainingThatDivergesIsSaidOnceAndNotStartedAgain) {
  const Outcome outcome =
      run_command(lockrun(2) + train("run",
                                     "model.n_layer=1 model.n_embd=16 train.steps=50 "
                                     "train.learning_rate=1e30 train.grad_clip=0 dist.replicas=2"));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.errors;
  const std::string words = "\n[rank 0] error: step 2: the loss is ";
  const size_t said = outcome.errors.find(words);
  ASSERT_NE(said, std::string::npos) << outcome.errors;
  EXPECT_EQ(outcome.errors.find(words, said + 1), std::string::npos) << outcome.errors;
  EXPECT_NE(outcome.errors.find("lower train.learning_rate"), std::string::npos) << outcome.errors;
  EXPECT_EQ(outcome.errors.find("(src/"), std::string::npos) << "no place in the sources: " << outcome.errors;
  EXPECT_EQ(outcome.errors.find("resuming"), std::string::npos) << outcome.errors;
}

/// The most memory, in MiB, that any process of a command held.
double most_memory(const std::string& command) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/bin/bash", "bash", "-c", (command + " 2>/dev/null").c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  rusage use{};
  EXPECT_EQ(::wait4(child, &status, 0, &use), child);
  EXPECT_EQ(status, 0) << command;
  return static_cast<double>(use.ru_maxrss) / 1024.0;
}

TEST_F(Resume, TakesNoMoreMemoryThanABeginning) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer keeps what is freed";
#endif
  // 20 million parameters, almost all in a table of which a step reads and computes little.
  const std::string settings =
      "data.block_size=8 model.n_layer=1 model.n_head=2 model.n_embd=128 model.vocab_size=160000 "
      "train.batch_size=1 dist.replicas=2";
  const std::string shorter = train("run", settings + " train.steps=2");
  const std::string longer = train("run", settings + " train.steps=3");
  const double fresh = most_memory(mpirun(2) + shorter);
  const double resumed = most_memory(mpirun(2) + longer);
  EXPECT_EQ(read_result(directory_ / "run").losses.size(), 3u);
  EXPECT_GT(fresh, 4 * 80.0) << "values, gradients and moments";
  EXPECT_LE(resumed, 1.1 * fresh);
}

}  // namespace
}  // namespace lockstep
