// SPDX-License-Identifier: Apache-2.0
// Runs with dist.audit_every: whole runs by their configuration.
#include <array>
#include <gtest/gtest.h>

#include "lockstep/core/process.h"
#include "lockstep/events/events.h"
#include "lockstep/tensor/ops.h"
#include "tests/support/tiny_training.h"

namespace lockstep {
namespace {

/// A run whose gradients depend on where each sample is, and how it is computed.
struct AuditedRun {
  int ranks = 2;
  Shard shard = Shard::none;
  int64_t accumulate = 1;
  DType precision = DType::f32;
  Recompute recompute = {};
  bool has_examples = false;  ///< samples have unequally many targets
  int64_t block_size = 8;
};

Job job_of_audited(const AuditedRun& row, const TemporaryDirectory& directory) {
  Job job = tiny_config(directory, 3);
  job.length.steps = 7;
  job.batches.batch_size = 4;
  job.batches.accumulate = row.accumulate;
  job.model.n_layer = 2;
  job.text.block_size = row.block_size;
  job.dist.shard = row.shard;
  job.compute.precision = row.precision;
  job.compute.recompute = row.recompute;
  if (row.has_examples) {
    job.text.dataset = "examples.jsonl";
    job.text.packing = false;
  }
  return job;
}

TEST(Audit, ChangesNoBitAndRaisesNoFalseAlarm) {
  using What = Recompute::What;
  const std::array rows = {
      AuditedRun{.accumulate = 2, .block_size = 160},  // products with a depth of several blocks
      AuditedRun{.ranks = 3, .shard = Shard::optimizer, .accumulate = 4, .precision = DType::f16},
      AuditedRun{
          .shard = Shard::gradients, .accumulate = 2, .precision = DType::bf16, .recompute = {What::block}},
      AuditedRun{.ranks = 3,
                 .shard = Shard::full,
                 .accumulate = 2,
                 .precision = DType::f16,
                 .recompute = {What::segments, 2},
                 .has_examples = true},
      AuditedRun{.precision = DType::f16, .recompute = {What::attention}, .has_examples = true},
  };
  const TemporaryDirectory directory;
  for (const AuditedRun& row : rows) {
    Job job = job_of_audited(row, directory);
    const RunResult plain = train_on(row.ranks, 1, job);
    job.dist.audit_every = 1;
    EXPECT_EQ(train_on(row.ranks, 1, job), plain) << to_ini(job);
    EXPECT_EQ(plain.loss_bits.size(), 7U);
  }
}

/// Trains on ranks of which rank 0 computes losses wrong. Returns the message of what is thrown.
std::string failure_of_audited(int ranks, const Job& job) {
  const QuietStderr quiet;
  try {
    train_on_threads(ranks, 1, job, [](AlteredTask& task) {
      task.on_loss = [original = task.on_loss](const Tensor& inputs, const Tensor& targets,
                                               const Context& context) {
        return scale(original(inputs, targets, context), 1.0 + 1.0 / 4096);
      };
    });
  } catch (const UserError& failure) {
    return concat("a user's error: ", failure.what());
  } catch (const Error& failure) {
    return failure.what();
  }
  return "";
}

TEST(Audit, EndsTheRunBeforeTheStepAndWritesAnEvent) {
  const TemporaryDirectory directory;
  Job job = job_of_audited({}, directory);
  job.dist.audit_every = 2;
  // Rank 2 computes the micro-batch of rank 1 again in step 2. Rank 0 computes that of rank 2 in step 4.
  const std::string failure = failure_of_audited(3, job);
  const std::string wrong = concat("rank 0 on host ", host_name());
  EXPECT_EQ(failure.find(concat("step 4: ", wrong, " computed wrong gradients: replica 2, ")), 0U) << failure;
  const std::vector<RunEvent> events = read_events(job.log.dir);
  const auto found = std::ranges::find(events, "audit", &RunEvent::what);
  ASSERT_NE(found, events.end());
  EXPECT_EQ(found->step, 4);
  EXPECT_EQ(found->facts.at("wrong"), wrong);
  EXPECT_EQ(found->facts.at("replica"), "2");
  EXPECT_EQ(found->facts.at("repeats"), "yes");
  EXPECT_EQ(read_result(job.log.dir).loss_bits.size(), 3U);
}

TEST(Audit, HasNoEffectOnOneRank) {
  const TemporaryDirectory directory;
  Job job = job_of_audited({.ranks = 1}, directory);
  const RunResult plain = train_on(1, 1, job);
  job.dist.audit_every = 1;
  testing::internal::CaptureStderr();
  EXPECT_EQ(train_on_threads(1, 1, job), 0);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("dist.audit_every has no effect on one rank"),
            std::string::npos);
  EXPECT_EQ(read_result(job.log.dir), plain);
}

}  // namespace
}  // namespace lockstep
