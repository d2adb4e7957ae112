// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <filesystem>
#include <gtest/gtest.h>
#include <thread>

#include "lockstep/store/http.h"
#include "lockstep/store/object_store.h"
#include "tests/cluster/s3_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/run_result.h"
#include "tests/support/user_error.h"

namespace lockstep {
namespace {

/// A tiny run of train_gpt on the built-in text, with its snapshots in the bucket.
class S3Training : public S3 {
 protected:
  std::string train(int ranks, const std::string& run, const std::string& more) const {
    return (ranks > 1 ? mpirun(ranks) : "") + program("train_gpt") +
           " data.dataset=sample data.block_size=16 data.train_split=0.995 model.n_layer=2 model.n_head=2 "
           "model.n_embd=16 model.dropout=0.1 train.steps=24 train.batch_size=2 train.warmup_steps=3 "
           "train.eval_every=12 dist.replicas=4 train.threads=1 log.every_steps=100 log.dir=" +
           (directory_ / run) + " " + more;
  }
};

TEST_F(S3Training, StoppedAndResumedAtAnotherNumberOfRanksOverAFaultyBucketItHasTheSameBits) {
  if (!has_mpirun()) LOCKSTEP_SKIP_OR_FAIL("there is no mpirun");
  const Outcome alone = run_command(train(1, "alone", "snapshot.path=none"));
  ASSERT_EQ(alone.exit_code, 0) << alone.errors;
  ASSERT_EQ(read_bits(directory_ / "alone").size(), 25u);

  use(server_->faulty(), "writer");
  const std::string snapshots = "snapshot.every_steps=6 snapshot.path=" + address("training");
  // The run is killed once the metrics have 14 lines, whether or not it writes a snapshot at that moment.
  const std::string metrics = directory_ / "disturbed/metrics.jsonl";
  const Outcome killed = run_command(
      train(2, "disturbed", snapshots) + " & job=$!; while kill -0 $job 2>/dev/null; do if [ $(cat " +
          metrics + " 2>/dev/null | wc -l) -ge 14 ]; then pkill -KILL -f log.dir=" +
          (directory_ / "disturbed") + "; fi; sleep 0.02; done; wait $job",
      300);
  EXPECT_NE(killed.exit_code, 0) << "the run was over before it could be killed";
  const Outcome resumed = run_command(train(3, "disturbed", snapshots + " snapshot.resume=required"), 300);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.errors;
  expect_contains(resumed.errors, {"resuming after step", address("training")});
  EXPECT_EQ(resumed.errors.find("could not be written"), std::string::npos) << resumed.errors;
  EXPECT_EQ(read_bits(directory_ / "disturbed"), read_bits(directory_ / "alone"));
  EXPECT_GE(faults(), 3);

  use(server_->plain(), "writer");
  const Outcome text =
      run_command(program("generate") + " --snapshot " + address("training") + " --prompt '- ' --tokens 5");
  EXPECT_EQ(text.exit_code, 0) << text.errors;
}

TEST_F(S3Training, AnOutageDuringARestartAndWrongReadsLeaveNoTrace) {
  if (!has_mpirun()) LOCKSTEP_SKIP_OR_FAIL("there is no mpirun");
  ASSERT_EQ(run_command(train(1, "alone", "snapshot.path=none")).exit_code, 0);
  const std::string metrics = directory_ / "disturbed/metrics.jsonl";
  std::thread disturber([&] {
    if (!eventually([&] { return std::ranges::count(read_text(metrics), '\n') >= 14; })) return;
    HttpClient client;
    client.perform({.url = server_->plain() + "/proxy/outage?16"});
    client.perform({.url = server_->plain() + "/proxy/force?half,missing,crawl,half,half"});
    run_command("pkill -KILL -o -f '^[^ ]*train_gpt .*log.dir=" + (directory_ / "disturbed") + "'");
  });
  const Outcome run =
      run_command(program("lockrun") + " --nproc 2 --max-restarts 1 -- " +
                      train(1, "disturbed", "snapshot.every_steps=6 snapshot.path=" + address("outage")),
                  300);
  disturber.join();
  EXPECT_EQ(run.exit_code, 0) << run.errors;
  expect_contains(run.errors, {"resuming after step", "s; trying for another "});
  EXPECT_EQ(read_bits(directory_ / "disturbed"), read_bits(directory_ / "alone"));
}

TEST_F(S3Training, OfTwoJobsOnOnePrefixOneTrainsAndTheNextTakesOver) {
  ::setenv("LOCKSTEP_S3_LEASE_SECONDS", "6", 1);
  const std::string place = "snapshot.every_steps=6 snapshot.path=" + address("two");
  const auto run_of = [&](const std::string& run, const std::string& more) {
    return train(1, run, place + " train.steps=4000 " + more);
  };
  const std::string metrics = directory_ / "first/metrics.jsonl";
  const Outcome both =
      run_command(run_of("first", "") + " & job=$!; while [ $(cat " + metrics +
                      " 2>/dev/null | wc -l) -lt 14 ]; do " + "kill -0 $job || exit 9; sleep 0.05; done; " +
                      run_of("second", "") + "; echo code $?; kill -KILL $job; wait $job; echo ended $?",
                  300);
  expect_contains(both.out + both.errors, {"code 2", "ended 137"});
  expect_contains(both.errors,
                  {"snapshot.path: another run writes to " + address("two"), "process ", "since "});
  const Outcome next = run_command(
      train(1, "third",
            place + " train.steps=4000 & job=$!; while [ $(cat " + (directory_ / "third/metrics.jsonl") +
                " 2>/dev/null | wc -l) -lt 2 ]; do kill -0 $job || exit "
                "9; sleep 0.05; done; kill -TERM $job; wait $job"),
      300);
  EXPECT_EQ(next.exit_code, 75) << next.errors;
  expect_contains(next.errors, {"to see whether process", "resuming after step"});
}

TEST_F(S3Training, WhatTheUserHasToChangeIsSaidWithTheCodeTwo) {
  const std::string path = "snapshot.path=" + address("taken");
  ASSERT_EQ(run_command(train(1, "first", path)).exit_code, 0);
  const Outcome anew = run_command(train(1, "second", path + " snapshot.resume=never"));
  EXPECT_EQ(anew.exit_code, 2);
  expect_contains(anew.errors, {address("taken"), "earlier run", "another snapshot.path"});
  // Moving log.dir aside keeps the lease on the bucket.
  const Outcome moved =
      run_command(train(1, "first", "snapshot.resume=never snapshot.path=" + address("fresh")));
  EXPECT_EQ(moved.exit_code, 0) << moved.errors;
  EXPECT_EQ(run_command(train(1, "third", "snapshot.path=" + address("empty") + " snapshot.resume=required"))
                .exit_code,
            2);
  ::setenv("AWS_SECRET_ACCESS_KEY", "not-the-right-secret", 1);
  const Outcome refused = run_command(train(1, "fourth", path));
  EXPECT_EQ(refused.exit_code, 2);
  expect_contains(refused.errors, {"403", address("taken")});
  EXPECT_EQ(refused.errors.find("not-the-right-secret"), std::string::npos);
}

TEST_F(S3Training, BeginsWithAModelFromTheBucket) {
  namespace fs = std::filesystem;
  const auto store = open_store(address("models/tiny"));
  for (const auto& file : fs::directory_iterator(LOCKSTEP_SOURCE_DIR "/tests/golden/huggingface/untied"))
    store->put_text(file.path().filename(), read_text(file.path()));
  const std::string from =
      " data.tokenizer=char model.n_head=4 model.n_embd=32 data.block_size=8 train.steps=2 "
      "train.warmup_steps=0 model.from=";
  const std::string unset = "snapshot.path=none" + from;
  const Outcome there = run_command(train(2, "there", unset + address("models/tiny")));
  EXPECT_EQ(there.exit_code, 0) << there.errors;
  const Outcome here =
      run_command(train(1, "here", unset + LOCKSTEP_SOURCE_DIR "/tests/golden/huggingface/untied"));
  EXPECT_EQ(here.exit_code, 0) << here.errors;
  EXPECT_EQ(read_bits(directory_ / "there"), read_bits(directory_ / "here"));
  const Outcome missing = run_command(train(1, "missing", unset + address("models/none")));
  EXPECT_EQ(missing.exit_code, 2);
  expect_contains(missing.errors, {"model.from: " + address("models/none"), "neither a config.json"});
}

TEST_F(S3Training, ReadsItsTextFromTheBucket) {
  open_store(address("texts"))->put_text("lines.txt", std::string(40'000, 'a') + "b\n");
  ::setenv("XDG_CACHE_HOME", (directory_ / "cache").c_str(), 1);
  const std::string data =
      "snapshot.path=none train.steps=4 data.train_split=0.9 data.dataset=" + address("texts/lines.txt");
  const Outcome first = run_command(train(1, "first", data));
  EXPECT_EQ(first.exit_code, 0) << first.errors;
  ::setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1", 1);
  const Outcome cached = run_command(train(1, "second", data));
  EXPECT_EQ(cached.exit_code, 0) << cached.errors;
}

}  // namespace
}  // namespace lockstep
