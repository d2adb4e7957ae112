// SPDX-License-Identifier: Apache-2.0
// lockrun with mpirun on this host, from start to end.

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/comm/open_mpi.h"
#include "lockstep/core/error.h"
#include "tests/elastic/lockrun_job.h"
#include "tests/support/limited_group.h"

namespace lockstep {
namespace {

TEST_F(Lockrun, ARunWithoutFailureIsStartedOnce) {
  LockrunJob job("--nproc 2", 6);
  EXPECT_EQ(job.exit_code(), 0) << job.errors();
  EXPECT_EQ(job.starts(), "0 2 0\n");
  EXPECT_TRUE(job.leaves_nothing());
}

TEST_F(Lockrun, RanksHaveTorchrunsVariablesAndNoneOfLockruns) {
  LockrunJob job = LockrunJob::of_command(
      "--nproc 1 --rdzv-id seven",
      "bash -c 'echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $TORCHELASTIC_RUN_ID; "
      "env | grep -c ^LOCKRUN_[FS]; env | grep OMPI_MCA_opal_signal; "
      "tr \"\\0\" \"\\n\" </proc/$PPID/environ | grep -c LOCKRUN_SECRET=.; true'");
  job.exit_code();
  EXPECT_EQ(job.output(), "0 1 0 1 0 seven\n0\nOMPI_MCA_opal_signal=\n0\n")
      << "its keeper's environment must not show the secret";
}

TEST_F(Lockrun, AStartThatFailedBeforeARankBeganLeavesNothingToResume) {
  ::setenv("LOCKSTEP_RUN_ID", "mine", 1);
  ::setenv("SLURM_RESTART_COUNT", "2", 1);
  LockrunJob job = LockrunJob::of_command("--nproc 1",
                                          "bash -c 'echo $LOCKSTEP_RESTART_COUNT $TORCHELASTIC_RESTART_COUNT "
                                          "$LOCKSTEP_RUN_ID $LOCKSTEP_GENERATION; "
                                          "exit $((TORCHELASTIC_RESTART_COUNT < 1))'");
  ::unsetenv("LOCKSTEP_RUN_ID");
  ::unsetenv("SLURM_RESTART_COUNT");
  EXPECT_EQ(job.exit_code(), 0) << job.errors();
  // Slurm's restart of the job counts, so a program resumes.
  EXPECT_EQ(job.output(), "2 0 mine 2000000\n2 1 mine 2000001\n");
}

TEST_F(Lockrun, MoreRanksThanDescriptorsAreRefusedWithWhatToRaise) {
  const Outcome outcome =
      run_command("bash -c 'ulimit -n 64; " + program("lockrun") + " --nproc 100 -- true'");
  EXPECT_EQ(outcome.exit_code, exit_usage);
  EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome.errors;
  expect_in_order(outcome.errors, {"100 ranks need 448 open files", "64 are allowed", "ulimit -n"});
}

TEST_F(Lockrun, RanksOfSrunNeedNoPipesHere) {
  const TemporaryDirectory directory;
  write_text(directory / "srun", "#!/bin/sh\nexit 3\n");
  std::filesystem::permissions(directory / "srun", std::filesystem::perms::owner_all);
  const Outcome outcome =
      run_command("bash -c 'ulimit -n 200; SLURM_JOB_ID=1 PATH=" + directory.path() + ":$PATH " +
                  program("lockrun") + " --via srun --max-restarts 0 --nproc 100 -- true'");
  EXPECT_NE(outcome.errors.find("srun ended"), std::string::npos) << outcome.errors;
}

TEST_F(Lockrun, AKilledRankIsNamedAndTheRunGoesOnFromTheSnapshot) {
  LockrunJob job("--nproc 2 --log-dir " + std::string("$TMPDIR/../log"), 12, "0:1:7:kill");
  EXPECT_EQ(job.exit_code(), 0) << job.errors();
  EXPECT_EQ(job.starts(), "0 2 0\n1 2 5\n");
  expect_in_order(job.errors(),
                  {"lockrun: rank 1 (host ", "was ended by SIGKILL (killed) at step 7 (counting)",
                   "rank 1 never entered collective ", "lockrun: restarts in 0.2 s"});
  const auto json = nlohmann::json::parse(read_text(job.file("log/failure.json")));
  EXPECT_EQ(json["root_cause"]["rank"], 1);
  EXPECT_EQ(json["root_cause"]["signal"], SIGKILL);
  EXPECT_EQ(json["exit_code"], 137);
  EXPECT_TRUE(job.leaves_nothing());
}

TEST_F(Lockrun, ARankThatTheKernelKillsForLackOfMemoryIsReportedAsSuch) {
  const LimitedGroup group("256M");
  if (!group.exists()) GTEST_SKIP() << "no control group can be made here";
  const CommandResult result =
      run_within(60.0, {"bash", "-c",
                        concat("echo $$ >", group.path(), "/cgroup.procs && exec ", program("lockrun"),
                               " --nproc 1 --max-restarts 0 -- tail /dev/zero")});
  EXPECT_EQ(result.ending.code(), 137);
  expect_in_order(result.output, {"rank 0 (host ",
                                  "was ended by SIGKILL (killed) for lack of memory (the limit "
                                  "of its control group is 256 MiB)"});
}

TEST_F(Lockrun, EveryOtherEndIsAFailureToo) {
  LockrunJob job("--nproc 2 --max-restarts 1", 20, "0:0:6:segv 1:1:11:throw 2:1:16:wrong");
  EXPECT_EQ(job.exit_code(), 0) << job.errors();
  EXPECT_EQ(job.starts(), "0 2 0\n1 2 5\n2 2 10\n3 2 15\n");
  expect_in_order(job.errors(), {"rank 0 (host ", "was ended by SIGSEGV", "rank 1 (host ",
                                 "left with exit code 1 at step 11", "the loss exploded",
                                 "lockrun: rank 1 computed wrong; host ", " stays in use"});
  EXPECT_EQ(job.errors().find("last lines of rank 1"), std::string::npos)
      << "the lines are printed a third time";
}

TEST_F(Lockrun, AStoppedRankIsTheCauseAndNotThoseThatWaitForIt) {
  ::setenv("ELASTIC_TIMEOUT", "3", 1);
  ::setenv("ELASTIC_LOG", "yes", 1);
  LockrunJob job("--nproc 3", 8, "0:1:6:stop");
  for (const char* variable : {"ELASTIC_TIMEOUT", "ELASTIC_LOG"}) ::unsetenv(variable);
  EXPECT_EQ(job.exit_code(), 0) << job.errors();
  EXPECT_EQ(job.starts(), "0 3 0\n1 3 5\n");
  expect_in_order(job.errors(), {"lockrun: rank 1 (host ", "was stopped (SIGSTOP)", "rank 1 never entered",
                                 ("stacks of its threads are in " + job.file("rank1.log")).c_str()});
  const std::string events = read_text(job.file("events.jsonl"));
  expect_in_order(events, {"\"event\":\"failure\"", "\"step\":6,", "\"cause\":\"rank 1 (host ",
                           "was stopped (SIGSTOP)", "\"rank\":\"1\""});
  EXPECT_EQ(std::ranges::count(events, '\n'), 1) << events;
  expect_in_order(read_text(job.file("rank1.log")),
                  {"started\n", "lockrun: stacks of rank 1, which made no progress for ", "elastic_rank"});
}

TEST_F(Lockrun, ARankThatHangsAloneIsNoticedByItsHeartbeat) {
  ::setenv("ELASTIC_TIMEOUT", "1", 1);
  LockrunJob job("--nproc 1", 8, "0:0:6:hang");
  ::unsetenv("ELASTIC_TIMEOUT");
  EXPECT_EQ(job.exit_code(), 0) << job.errors();
  expect_in_order(job.errors(),
                  {"lockrun: stacks of rank 0, ", "rank 0 (host ", "was stuck: no heartbeat for ",
                   " s at step 6", "stacks of its threads are in its stderr"});
}

TEST_F(Lockrun, BadInputIsNotTriedAgain) {
  LockrunJob job("--nproc 2", 12, "0:1:3:usage");
  EXPECT_EQ(job.exit_code(), exit_usage);
  EXPECT_EQ(job.starts(), "0 2 0\n");
  LockrunJob missing = LockrunJob::of_command("--nproc 2", "no_such_program");
  EXPECT_EQ(missing.exit_code(), exit_usage);
  EXPECT_NE(missing.errors().find("no_such_program"), std::string::npos) << missing.errors();
}

TEST_F(Lockrun, WithoutProgressItGivesUpWithTheFailuresCode) {
  LockrunJob job("--nproc 2 --max-restarts 1", 12, "0:1:3:segv 1:1:3:kill");
  EXPECT_EQ(job.exit_code(), 137) << job.errors();
  EXPECT_EQ(job.starts(), "0 2 0\n1 2 0\n");
  EXPECT_NE(job.errors().find("gave up after 1 restarts"), std::string::npos) << job.errors();
  EXPECT_TRUE(job.leaves_nothing());
}

TEST_F(Lockrun, ToldToStopItSnapshotsAndLeavesWith75) {
  LockrunJob job("--nproc 2", 100000);
  ASSERT_TRUE(job.reaches_step(5)) << job.errors();
  job.signal(SIGTERM);
  EXPECT_EQ(job.exit_code(), exit_stopped) << job.errors();
  EXPECT_EQ(job.starts(), "0 2 0\n");
  EXPECT_TRUE(job.leaves_nothing());
}

TEST_F(Lockrun, ALongLastSnapshotIsWaitedForHoweverOftenABatchSystemAsks) {
  ::setenv("ELASTIC_SNAPSHOT_SECONDS", "7", 1);
  LockrunJob job("--nproc 2 --grace 4", 100000, "");
  ::unsetenv("ELASTIC_SNAPSHOT_SECONDS");
  // Before the first snapshot, lockrun does not know how long one takes.
  ASSERT_TRUE(eventually([&] { return !job.starts().empty(); })) << job.errors();
  job.signal_group(SIGINT);
  ASSERT_TRUE(job.says("Ctrl-C again ends at once")) << job.errors();
  for (const int number : {SIGTERM, SIGTERM, SIGUSR1, SIGHUP}) job.signal_group(number);
  EXPECT_EQ(job.exit_code(), exit_stopped) << job.errors();
  EXPECT_EQ(job.starts(), "0 2 0\n");
  EXPECT_GT(job.snapshot_step(), 0);
}

TEST_F(Lockrun, ARankThatCannotSaveWhenToldToStopIsAFailure) {
  LockrunJob job = LockrunJob::of_command(
      "--nproc 1", "bash -c 'trap \"exit 1\" USR1; echo ready >&2; while :; do sleep 0.1; done'");
  ASSERT_TRUE(job.says("ready"));
  job.signal(SIGTERM);
  EXPECT_EQ(job.exit_code(), 1);
  EXPECT_NE(job.errors().find("left with exit code 1"), std::string::npos) << job.errors();
}

TEST_F(Lockrun, ARankThatSomebodyElseTerminatesIsRestarted) {
  LockrunJob job("--nproc 2", 12, "0:1:6:left");
  EXPECT_EQ(job.exit_code(), 0) << job.errors();
  EXPECT_EQ(job.starts(), "0 2 0\n1 2 7\n");
  EXPECT_NE(job.errors().find("which lockrun had not asked for"), std::string::npos) << job.errors();
}

TEST_F(Lockrun, RanksThatDoNotStopAreKilledAfterTheGrace) {
  ::setenv("ELASTIC_SNAPSHOT_SECONDS", "1", 1);
  LockrunJob job("--nproc 1 --grace 3", 100000, "0:0:5:hang");
  ::unsetenv("ELASTIC_SNAPSHOT_SECONDS");
  ASSERT_TRUE(job.reaches_step(5));
  job.signal(SIGTERM);
  EXPECT_EQ(job.exit_code(), 1);
  // The last snapshot took a second, and lockrun may have to wait for two.
  EXPECT_NE(job.errors().find("asked to stop and did not stop within 5 s"), std::string::npos)
      << job.errors();
  EXPECT_TRUE(job.leaves_nothing());
}

TEST_F(Lockrun, ASecondInterruptEndsEverythingAtOnce) {
  LockrunJob job("--nproc 2", 100000, "0:0:5:hang");
  ASSERT_TRUE(job.reaches_step(5));
  job.signal_group(SIGINT);
  ASSERT_TRUE(job.says("Ctrl-C again ends at once")) << job.errors();
  job.signal_group(SIGINT);
  EXPECT_EQ(job.exit_code(), 130);
  EXPECT_TRUE(job.leaves_nothing());
}

TEST_F(Lockrun, NothingIsLeftWhenItIsKilledItself) {
  for (const std::string& launcher : launchers_here()) {
    LockrunJob job("--nproc 2 --via " + launcher, 100000);
    ASSERT_TRUE(job.reaches_step(5));
    ASSERT_GE(job.processes().size(), 5U);
    const std::string segments = job.variable_of_rank("OMPI_MCA_btl_vader_backing_directory");
    EXPECT_TRUE(std::filesystem::exists(segments)) << segments;
    job.signal(SIGKILL);
    EXPECT_TRUE(job.leaves_nothing()) << launcher;
    EXPECT_FALSE(std::filesystem::exists(segments)) << segments;
  }
}

// No process is left that could remove the files, so the next start does.
TEST_F(Lockrun, FilesOfARunWhoseProcessesWereAllKilledAreRemovedByTheNextStart) {
  LockrunJob job("--nproc 2", 100000);
  ASSERT_TRUE(job.reaches_step(5));
  const std::string segments = job.variable_of_rank("OMPI_MCA_btl_vader_backing_directory");
  const auto signal_all = [&](int number, const char* command) {
    for (const pid_t process : job.processes(command)) ::kill(process, number);
  };
  signal_all(SIGSTOP, "");
  // The kernel continues stopped keepers whose parent ends, and such a keeper removes the files.
  signal_all(SIGKILL, "--keeper");
  signal_all(SIGKILL, "");
  ASSERT_TRUE(eventually([&] { return job.processes().empty(); }));
  // A lockrun of another test may have removed the segments, but it has another TMPDIR.
  EXPECT_FALSE(std::filesystem::is_empty(job.file("tmp")));
  // A process without an environment may still hold the locks for a moment.
  EXPECT_TRUE(eventually([&] {
    const Outcome next = run_command("TMPDIR=" + job.file("tmp") + " " + program("lockrun") + " -- true");
    EXPECT_EQ(next.exit_code, 0) << next.errors;
    return !std::filesystem::exists(segments) && std::filesystem::is_empty(job.file("tmp"));
  }));
}

TEST_F(Lockrun, TheHostFileIsReadBeforeEveryStart) {
  const TemporaryDirectory directory;
  const std::string hosts = directory / "hosts";
  write_text(hosts, "localhost slots=2\n");
  // Each kill is one step after a snapshot, when rank 0 has written it.
  LockrunJob job("--hostfile " + hosts, 340, "0:1:151:kill 1:1:301:kill");
  ASSERT_TRUE(job.reaches_step(5));
  write_text(hosts, "localhost slots=3  # one more\n");
  ASSERT_TRUE(job.reaches_step(155)) << job.errors();
  write_text(hosts, "localhost slots=1\n");
  EXPECT_EQ(job.exit_code(), 0) << job.errors();
  EXPECT_EQ(job.starts(), "0 2 0\n1 3 150\n2 1 300\n");
}

TEST_F(Lockrun, NoMoreRanksThanReplicasAreStartedAgain) {
  const TemporaryDirectory directory;
  write_text(directory / "hosts", "localhost slots=2\n");
  ::setenv("ELASTIC_REPLICAS", "3", 1);
  LockrunJob job("--hostfile " + (directory / "hosts"), 40, "0:1:31:kill");
  ::unsetenv("ELASTIC_REPLICAS");
  ASSERT_TRUE(job.reaches_step(5)) << job.errors();
  write_text(directory / "hosts", "localhost slots=8\n");
  EXPECT_EQ(job.exit_code(), 0) << job.errors();
  EXPECT_EQ(job.starts(), "0 2 0\n1 3 30\n");
  EXPECT_NE(job.errors().find("starts 3 of 8 ranks"), std::string::npos) << job.errors();
}

TEST_F(Lockrun, AHostThatMpirunCannotReachFailsOneStart) {
  if (MpiVersion::of_mpirun().major() >= 5) GTEST_SKIP() << "Open MPI 5 starts ranks on one host alone";
  const TemporaryDirectory directory;
  const std::string hosts = directory / "hosts";
  write_text(hosts, "localhost slots=1\nnode.invalid slots=1\n");
  // This agent replaces ssh. It corrects the host file and fails.
  write_text(directory / "agent", "#!/bin/sh\necho localhost slots=2 >" + hosts + "\nexit 255\n");
  std::filesystem::permissions(directory / "agent", std::filesystem::perms::owner_all);
  ::setenv("OMPI_MCA_plm_rsh_agent", (directory / "agent").c_str(), 1);
  LockrunJob job("--local-addr 127.0.0.1 --hostfile " + hosts, 6);
  ::unsetenv("OMPI_MCA_plm_rsh_agent");
  EXPECT_EQ(job.exit_code(), 0) << job.errors();
  EXPECT_EQ(job.starts(), "1 2 0\n");
  EXPECT_NE(job.errors().find("before rank 0, 1 had started"), std::string::npos) << job.errors();
}

// The refusal names the version. A host file with other hosts needs Open MPI 4, and mpirun has to be Open
// MPI's.
TEST(LockrunWithAnotherMpirun, IsRefused) {
  const TemporaryDirectory directory;
  const auto refusal = [&](const std::string& version, const std::string& options) {
    write_text(directory / "mpirun", "#!/bin/sh\necho '" + version + "'\n");
    std::filesystem::permissions(directory / "mpirun", std::filesystem::perms::owner_all);
    const Outcome outcome = run_command("unset SLURM_JOB_ID; PATH=" + directory.path() + ":$PATH " +
                                        program("lockrun") + " " + options + " -- true");
    EXPECT_EQ(outcome.exit_code, exit_usage) << outcome.errors;
    return outcome.errors;
  };
  write_text(directory / "hosts", "localhost\nnode.invalid\n");
  const std::string far =
      refusal("mpirun (Open MPI) 5.0.7", "--local-addr 127.0.0.1 --hostfile " + (directory / "hosts"));
  EXPECT_NE(far.find("the mpirun in PATH is Open MPI 5.0.7"), std::string::npos) << far;
  const std::string other = refusal("HYDRA build details: Version: 4.0.2", "--via mpirun --nproc 2");
  EXPECT_NE(other.find("the mpirun in PATH is MPICH 4.0.2"), std::string::npos) << other;
}

TEST_F(Lockrun, AKilledKeeperIsALostRank) {
  LockrunJob job("--nproc 2", 400);
  ASSERT_TRUE(job.reaches_step(5));
  std::vector<pid_t> keepers = job.processes("--keeper");
  // The command line of mpirun contains that of the keepers.
  const std::vector<pid_t> launchers = job.launchers();
  std::erase_if(keepers, [&](pid_t process) {
    return std::find(launchers.begin(), launchers.end(), process) != launchers.end();
  });
  ASSERT_FALSE(keepers.empty()) << job.errors();
  ::kill(keepers.front(), SIGKILL);
  EXPECT_EQ(job.exit_code(), 0) << job.errors();
  EXPECT_NE(job.errors().find("was lost: its keeper is gone"), std::string::npos) << job.errors();
  EXPECT_TRUE(job.leaves_nothing());
}

// Its ranks would wait for it in MPI_Finalize.
TEST_F(Lockrun, AStoppedLauncherEndsTheAttempt) {
  for (const std::string& launcher : launchers_here()) {
    LockrunJob job("--nproc 2 --max-restarts 0 --via " + launcher, 50);
    ASSERT_TRUE(job.reaches_step(5));
    for (const pid_t process : job.launchers()) ::kill(process, SIGSTOP);
    EXPECT_EQ(job.exit_code(), 1) << job.errors();
    EXPECT_NE(job.errors().find(" was stopped (SIGSTOP) for 10 s"), std::string::npos) << job.errors();
    EXPECT_TRUE(job.leaves_nothing()) << launcher;
  }
}

TEST_F(Lockrun, AKilledLauncherIsTheCause) {
  for (const std::string& launcher : launchers_here()) {
    LockrunJob job("--nproc 2 --via " + launcher, 150);
    ASSERT_TRUE(job.reaches_step(5));
    for (const pid_t process : job.launchers()) ::kill(process, SIGKILL);
    EXPECT_EQ(job.exit_code(), 0) << job.errors();
    EXPECT_NE(job.errors().find(concat(launcher == "pmix" ? "lockrun_host" : launcher,
                                       " ended (SIGKILL (killed)) before its ranks")),
              std::string::npos)
        << job.errors();
    EXPECT_TRUE(job.leaves_nothing());
  }
}

}  // namespace
}  // namespace lockstep
