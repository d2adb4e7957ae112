// SPDX-License-Identifier: Apache-2.0
// The programs with train.device = cuda. The bits are equal over ranks and transports. Problems of a machine
// are reported.

#include "support/cuda.h"
#include "support/program.h"
#include "support/run_result.h"

namespace lockstep {
namespace {

class ProgramsOnGpu : public testing::Test {
 protected:
  std::string train(const std::string& run, const std::string& more = "") const {
    return "env XDG_CACHE_HOME=" + (directory_ / "cache") + " " + program("train_gpt") +
           " data.dataset=sample data.block_size=16 data.train_split=0.999 model.n_layer=1 model.n_head=2 "
           "model.n_embd=64 model.dropout=0.1 train.steps=6 train.batch_size=2 train.warmup_steps=2 "
           "train.eval_every=0 dist.replicas=4 dist.bucket_mib=0.02 dist.timeout_s=60 train.threads=1 "
           "train.device=cuda log.every_steps=100 log.dir=" +
           (directory_ / run) + " " + more;
  }

  std::vector<std::string> bits(const std::string& run) const { return read_bits(directory_ / run); }

  TemporaryDirectory directory_;
};

TEST_F(ProgramsOnGpu, RanksThatShareAGpuHaveTheBitsOfOne) {
  LOCKSTEP_NEEDS_GPU();
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const Outcome alone = run_command(train("alone"));
  ASSERT_EQ(alone.exit_code, 0) << alone.errors;
  ASSERT_EQ(bits("alone").size(), 7U);
  const Outcome two = run_command("LOCKSTEP_SHARE_GPU=1 " + mpirun(2) + train("two"));
  ASSERT_EQ(two.exit_code, 0) << two.errors;
  EXPECT_EQ(bits("two"), bits("alone"));
}

TEST_F(ProgramsOnGpu, StoppedOnRequestBetweenRecordedStepsItGoesOnWithTheSameBits) {
  LOCKSTEP_NEEDS_GPU();
  const std::string steps = "train.steps=40 ";
  ASSERT_EQ(run_command(train("undisturbed", steps), 280).exit_code, 0);
  const std::string snapshots = steps + "snapshot.every_steps=0 snapshot.path=" + (directory_ / "snapshots");
  const std::string metrics = directory_ / "stopped/metrics.jsonl";
  const Outcome stopped =
      run_command(train("stopped", snapshots) + " & job=$!; while kill -0 $job && [ $(cat " + metrics +
                      " 2>/dev/null | wc -l) -lt 4 ]; do sleep 0.01; done; pkill -USR1 -f '^" +
                      program("train_gpt") + ".*" + (directory_ / "stopped") + "'; wait $job",
                  280);
  EXPECT_EQ(stopped.exit_code, 75) << stopped.errors;
  EXPECT_LT(bits("stopped").size(), 40U) << "the run ended before it was asked to stop";
  const Outcome last = run_command(train("stopped", snapshots), 280);
  ASSERT_EQ(last.exit_code, 0) << last.errors;
  EXPECT_EQ(bits("stopped"), bits("undisturbed"));
}

TEST_F(ProgramsOnGpu, HeadsThatTheKernelsDoNotKnowAreSaid) {
  LOCKSTEP_NEEDS_GPU();
  for (const char* sizes : {"model.n_embd=512", "model.n_embd=60 model.n_head=5 train.precision=bf16"}) {
    const Outcome outcome = run_command(train("heads", sizes));
    EXPECT_EQ(outcome.exit_code, 2) << outcome.errors;
    EXPECT_NE(outcome.first_error_line().find("model.n_embd / model.n_head"), std::string::npos)
        << outcome.errors;
  }
}

TEST_F(ProgramsOnGpu, MoreRanksThanGpusIsSaid) {
  LOCKSTEP_NEEDS_GPU();
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const int ranks = count_gpus() + 1;
  if (ranks > 4) GTEST_SKIP() << "this machine has many GPUs";
  const Outcome outcome = run_command("env --unset=LOCKSTEP_SHARE_GPU " + mpirun(ranks) + train("many"));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.errors;
  for (const char* part : {"GPU", "ranks", "LOCKSTEP_SHARE_GPU"})
    EXPECT_NE(outcome.errors.find(part), std::string::npos) << part << " in: " << outcome.errors;
}

#if defined(LOCKSTEP_EMULATED)

TEST_F(ProgramsOnGpu, RanksWithAGpuEachMeetThroughNccl) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const Outcome alone = run_command(train("alone"));
  ASSERT_EQ(alone.exit_code, 0) << alone.errors;
  for (const int ranks : {2, 3}) {
    const std::string run = concat("ranks", ranks);
    const Outcome outcome =
        run_command(concat("LOCKSTEP_EMULATED_GPUS=", ranks, " ", mpirun(ranks), train(run)));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
    EXPECT_NE(outcome.errors.find("by NCCL"), std::string::npos) << outcome.errors;
    EXPECT_EQ(bits(run), bits("alone")) << ranks << " ranks";
  }
}

// After an illegal address each call of CUDA fails, and NCCL waits for the GPU forever.
TEST_F(ProgramsOnGpu, ALostGpuEndsItsRankWithTheCause) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const Outcome outcome = run_command("LOCKSTEP_EMULATED_GPUS=2 LOCKSTEP_EMULATED_GPU_LOST_AFTER=300 " +
                                          mpirun(2) + train("lost", "train.steps=1000"),
                                      60);
  EXPECT_EQ(outcome.exit_code, 1) << outcome.errors;
  for (const char* part : {"cudaErrorIllegalAddress", "this process cannot use the GPU any more"})
    EXPECT_NE(outcome.errors.find(part), std::string::npos) << part << " in: " << outcome.errors;
}

TEST_F(ProgramsOnGpu, WithoutAGpuTheFirstLineSaysWhatToDo) {
  const Outcome outcome = run_command("LOCKSTEP_EMULATED_GPUS=0 " + train("none"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.first_error_line().find("train.device = cuda: "), std::string::npos) << outcome.errors;
  EXPECT_NE(outcome.first_error_line().find("set auto or cpu"), std::string::npos) << outcome.errors;
  const Outcome on_cpu =
      run_command("LOCKSTEP_EMULATED_GPUS=0 " + train("auto", "train.device=auto train.steps=2"));
  EXPECT_EQ(on_cpu.exit_code, 0) << on_cpu.errors;
}

TEST_F(ProgramsOnGpu, AnOldDriverIsReportedWithTheLeastVersion) {
  const Outcome outcome = run_command("LOCKSTEP_EMULATED_DRIVER=12000 " + train("old"));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.errors;
  EXPECT_NE(outcome.first_error_line().find("supports CUDA 12.0, but this program needs 1"),
            std::string::npos)
      << outcome.errors;
  const Outcome on_cpu =
      run_command("LOCKSTEP_EMULATED_DRIVER=12000 " + train("auto", "train.device=auto train.steps=2"));
  EXPECT_EQ(on_cpu.exit_code, 0) << on_cpu.errors;
}

TEST_F(ProgramsOnGpu, WhatDoesNotFitIsToldBeforehand) {
  const Outcome outcome = run_command("LOCKSTEP_EMULATED_GPU_BYTES=1500000 " + train("small"));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.errors;
  for (const char* part : {"a rank needs at least", "weights", "gradients", "this GPU has 1.4 MiB"})
    EXPECT_NE(outcome.errors.find(part), std::string::npos) << part << " in: " << outcome.errors;
}

TEST_F(ProgramsOnGpu, WhatAGpuHasNoRoomForItsHostHas) {
  const std::string limited = "LOCKSTEP_EMULATED_GPU_BYTES=3300000 ";
  const std::string wide = "model.n_embd=128 dist.replicas=1 train.recompute=block ";
  const Outcome refused = run_command(limited + train("host", wide));
  EXPECT_EQ(refused.exit_code, 2) << refused.errors;
  EXPECT_NE(refused.errors.find("what fits: dist.offload=optimizer"), std::string::npos) << refused.errors;
  const Outcome plan = run_command(limited + train("host", wide + "dist.offload=optimizer --plan"));
  EXPECT_NE(plan.out.find("on the host"), std::string::npos) << plan.out;
  const Outcome trained = run_command(limited + train("host", wide + "dist.offload=optimizer"));
  EXPECT_EQ(trained.exit_code, 0) << trained.errors;
  EXPECT_EQ(run_command(train("device", wide)).exit_code, 0);
  EXPECT_EQ(bits("host"), bits("device"));
}

#endif

}  // namespace
}  // namespace lockstep
