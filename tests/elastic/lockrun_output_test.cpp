// SPDX-License-Identifier: Apache-2.0
// The output of ranks under lockrun, from the rank to files and readers.

#include <gtest/gtest.h>

#include "lockstep/comm/open_mpi.h"
#include "lockstep/core/error.h"
#include "tests/elastic/lockrun_job.h"

namespace lockstep {
namespace {

TEST_F(Lockrun, WhatRanksPrintIsPassedOnUnchanged) {
  LockrunJob job = LockrunJob::of_command("--nproc 1", "bash -c 'echo out; echo error >&2'");
  EXPECT_EQ(job.exit_code(), 0);
  EXPECT_EQ(job.output(), "out\n");
  EXPECT_EQ(job.errors(), "error\n");
}

TEST_F(Lockrun, ASlowReaderGetsAllOutput) {
  LockrunJob job = LockrunJob::of_command("--nproc 2", "seq 20000 | (sleep 3.5; wc -l)");
  EXPECT_EQ(job.exit_code(), 0) << job.errors();
  EXPECT_EQ(job.output(), "40000\n");
}

TEST_F(Lockrun, ARankThatPrintsWithoutEndWaitsForASlowReader) {
  // Open MPI 5's mpirun keeps in memory what ranks print faster than it writes.
  const bool keeps_all = has_mpirun() && MpiVersion::of_mpirun().major() >= 5;
  const std::string launcher = keeps_all ? launchers_here().front() : launchers_here().back();
  ::setenv("ELASTIC_TIMEOUT", "1", 1);
  LockrunJob job("--nproc 1 --via " + launcher, 6,
                 "0:0:3:flood | (until [ -e $TMPDIR/../go ]; do sleep 0.1; done; cat >/dev/null)");
  ::unsetenv("ELASTIC_TIMEOUT");
  const auto printed = [&] { return std::atoi(read_text(job.file("printed")).c_str()); };
  // Once its output is held, the rank waits for longer than it may be stuck.
  int before = 0;
  ASSERT_TRUE(eventually([&] {
    before = printed();
    std::this_thread::sleep_for(std::chrono::seconds(4));
    return before > 500 || (before > 0 && printed() == before);
  }));
  EXPECT_LT(before, 500) << "mpirun buffers all that ranks print";
  write_text(job.file("go"), "");
  EXPECT_TRUE(eventually([&] { return printed() > before + 50; })) << printed();
  write_text(job.file("enough"), "");
  EXPECT_EQ(job.exit_code(), 0);
  EXPECT_EQ(job.starts(), "0 1 0\n") << "a rank that waits for a reader is not stuck";
}

TEST_F(Lockrun, StreamsOfRanksGoToFilesAndToTheConsole) {
  LockrunJob job = LockrunJob::of_command(
      "--nproc 2 --log-dir $TMPDIR/../log --tee 1 --redirects 0:2 --local-ranks-filter 0",
      "bash -c 'echo out $RANK; echo error $RANK $TERM >&2; [ $RANK$TORCHELASTIC_RESTART_COUNT != 00 ]'");
  EXPECT_EQ(job.exit_code(), 0) << job.errors();
  EXPECT_EQ(job.output(), "[rank 0]: out 0\n[rank 0]: out 0\n");
  expect_in_order(job.errors(),
                  {"rank 0 (host ", "left with exit code 1", "last lines of rank 0:\n    error 0"});
  EXPECT_EQ(job.errors().find("error 1"), std::string::npos) << job.errors();
  EXPECT_EQ(read_text(job.file("log/attempt_0/0/stdout.log")), "out 0\n");
  EXPECT_EQ(read_text(job.file("log/attempt_1/0/stderr.log")), "error 0 dumb\n") << "no bar in a file";
  EXPECT_EQ(read_text(job.file("log/attempt_1/1/stdout.log")), "out 1\n");
  EXPECT_FALSE(std::filesystem::exists(job.file("log/attempt_1/1/stderr.log")));
  EXPECT_TRUE(std::filesystem::exists(job.file("log/failure.json")));
}

TEST_F(Lockrun, OutputThatIsNotAcceptedIsAFailureButAReaderMayLeave) {
  const auto run = [](const std::string& rest) {
    return run_within(60.0, {"bash", "-c", concat(program("lockrun"), " --nproc 1 -- ", rest)});
  };
  const CommandResult full = run("echo result >/dev/full");
  EXPECT_EQ(full.ending.code(), 1);
  EXPECT_EQ(full.output, "error: lockrun: the output of the ranks is incomplete: No space left on device\n");
  const CommandResult failed = run("bash -c 'echo result; exit 2' >/dev/full");
  EXPECT_EQ(failed.ending.code(), 2) << failed.output;
  const CommandResult left = run("seq 30000 | head -n 1; exit ${PIPESTATUS[0]}");
  EXPECT_EQ(left.ending.code(), 0);
  EXPECT_EQ(left.output, "1\n");
  // A log file of 30 MB where files may have 20.
  const TemporaryDirectory directory;
  const CommandResult cut =
      run_within(60.0, {"bash", "-c",
                        concat("ulimit -f 20000; ", program("lockrun"), " --nproc 1 --redirects 1 --log-dir ",
                               directory.path(), " -- seq 4000000")});
  EXPECT_EQ(cut.ending.code(), 1);
  EXPECT_EQ(cut.output, concat("error: lockrun: the output of the ranks is incomplete: rank 0: cannot write ",
                               directory.path(), "/attempt_0/0/stdout.log: File too large\n"));
}

}  // namespace
}  // namespace lockstep
