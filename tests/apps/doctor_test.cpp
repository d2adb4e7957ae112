// SPDX-License-Identifier: Apache-2.0
#include "lockstep/doctor/doctor.h"

#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/net/socket.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Tests of the doctor in a directory of its own, where a test can break things.
class Doctor : public testing::Test {
 protected:
  Outcome examine(const std::string& arguments, const std::string& environment = "") {
    // The doctor starts ranks itself.
    return run_command("cd " + directory_.path() + " && ASAN_OPTIONS=" + asan_options_of_ranks + " " +
                       environment + " " + program("doctor") + " --json " + arguments);
  }

  /// Returns the finding of that name in a report. If there is none, its name is "absent".
  static Finding finding(const Outcome& outcome, const std::string& name) {
    if (!nlohmann::json::accept(outcome.out))
      return {"no report: " + outcome.out, Verdict::ok, outcome.errors};
    for (const Finding& finding : findings_from_json(outcome.out))
      if (finding.name == name) return finding;
    return {"absent", Verdict::ok, outcome.out};
  }

  void expect_problem(const Outcome& outcome, const std::string& name, const std::string& said) {
    const Finding problem = finding(outcome, name);
    EXPECT_EQ(problem.name, name) << problem.found << outcome.errors;
    EXPECT_EQ(problem.verdict, Verdict::problem) << problem.found;
    EXPECT_TRUE(has(problem.found, said)) << problem.found;
    EXPECT_FALSE(problem.advice.empty());
    EXPECT_EQ(outcome.exit_code, 1);
  }

  void write_command(const std::string& name, const std::string& script) {
    fs::create_directory(directory_ / "bin");
    write_text(directory_ / "bin/" + name, "#!/bin/sh\n" + script);
    fs::permissions(directory_ / "bin/" + name, fs::perms::owner_all);
  }

  /// Returns a PATH in which mpirun is this script.
  std::string with_mpirun(const std::string& script) {
    write_command("mpirun", script);
    return "PATH=" + (directory_ / "bin") + ":$PATH";
  }

  /// Returns the beginning of such a script. It reports the version of this machine's mpirun.
  static std::string as_installed() {
    return "if [ \"$1\" = --version ]; then exec " + real_mpirun() + " --version; fi\n";
  }

  static std::string real_mpirun() {
    const std::string path = run_command("command -v mpirun").out;
    return path.substr(0, path.find('\n'));
  }

  TemporaryDirectory directory_;
};

TEST_F(Doctor, FindsNothingWrongWhereAllIsWell) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const Outcome outcome = examine("log.dir=run snapshot.path=snapshots");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.errors;
  for (const char* name :
       {"user", "mpirun", "two ranks", "one rank", "lockrun", "gpu", "nccl", "host name", "port", "ipv6",
        "binding", "clock", "disk log.dir", "disk snapshot.path", "shared memory"})
    EXPECT_EQ(finding(outcome, name).name, name);
  for (const char* name : {"two ranks", "lockrun"})
    EXPECT_EQ(finding(outcome, name).verdict, Verdict::ok) << finding(outcome, name).found;
  EXPECT_TRUE(fs::is_empty(directory_.path())) << "it left something behind";
}

TEST_F(Doctor, SaysItInLinesWithAdvice) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const Outcome outcome = run_command("cd " + directory_.path() + " && PATH=/nowhere " + program("doctor"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(has(outcome.out, "problem  mpirun")) << outcome.out;
  EXPECT_TRUE(has(outcome.out, "-> install openmpi-bin")) << outcome.out;
}

TEST_F(Doctor, LooksForMpirun) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  expect_problem(examine("", "PATH=/nowhere"), "mpirun", "not found in PATH");
  const Outcome other = examine("", with_mpirun("echo 'mpirun (Open MPI) 5.9.1'\n"));
  expect_problem(other, "mpirun", "Open MPI) 5.9.1, but this program is linked with Open MPI v");
  EXPECT_EQ(finding(other, "two ranks").name, "absent") << "no ranks may be started with another MPI";
}

TEST_F(Doctor, RanksThatDoNotStartAreNotWaitedFor) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const std::string sleep = "sleep 999." + std::to_string(::getpid());
  const Outcome outcome = examine("--deadline 2", with_mpirun(as_installed() + "exec " + sleep + "\n"));
  expect_problem(outcome, "two ranks", "nothing within 2 s");
  EXPECT_LT(outcome.seconds, 60);
  EXPECT_NE(run_command("pgrep -f '" + sleep + "$'").exit_code, 0) << "a process of the doctor still runs";
}

TEST_F(Doctor, RanksThatFailAreQuoted) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  expect_problem(
      examine("", with_mpirun(as_installed() + "echo ORTE was unable to start a daemon >&2\nexit 213\n")),
      "two ranks", "exit code 213: ORTE was unable to start a daemon");
  // The two processes do not know each other, as with an mpirun of another MPI.
  expect_problem(examine("", with_mpirun(as_installed() + "shift 2\n\"$@\"\n\"$@\"\n")), "two ranks",
                 "lockstep-probe 1 ranks");
}

TEST_F(Doctor, TooFewSlotsAreAWarningWithTheOptionThatHelps) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const Outcome outcome =
      examine("", with_mpirun(as_installed() + "case \"$*\" in *oversub*|*'-np 1'*) exec " + real_mpirun() +
                              " \"$@\";; esac\necho There are not enough slots available >&2\nexit 1\n"));
  EXPECT_EQ(finding(outcome, "two ranks").verdict, Verdict::warning) << finding(outcome, "two ranks").found;
  EXPECT_TRUE(has(finding(outcome, "two ranks").advice, "--oversubscribe"));
}

TEST_F(Doctor, AnSrunWhoseTasksCannotFindEachOther) {
  const std::string slurm = "PATH=" + (directory_ / "bin") + " ";
  const auto srun = [&](const std::string& variables) {
    return finding(examine("", slurm + variables), "srun");
  };
  EXPECT_EQ(srun("").name, "absent") << "there is no Slurm";
  write_command("scontrol", "echo 'MinJobAge = 300 sec'; echo 'MpiDefault              = pmi2'\n");
  write_command("srun", "echo 'MPI plugin types are...'; echo '  none'; echo '  pmix'; echo '  pmi2'\n");
  EXPECT_EQ(srun("").verdict, Verdict::warning);
  EXPECT_TRUE(has(srun("").found, "the cluster's MpiDefault is pmi2")) << srun("").found;
  EXPECT_TRUE(has(srun("").advice, "export SLURM_MPI_TYPE=pmix")) << srun("").advice;
  EXPECT_EQ(srun("SLURM_MPI_TYPE=pmix_v4").verdict, Verdict::ok);
  EXPECT_EQ(srun("SLURM_MPI_TYPE=none").verdict, Verdict::warning);
  write_command("srun", "echo 'MPI plugin types are...'; echo '  none'\n");
  EXPECT_TRUE(has(srun("SLURM_MPI_TYPE=pmix").advice, "mpirun")) << srun("").found;
}

TEST_F(Doctor, FoldersThatCannotBeWritten) {
  write_text(directory_ / "file", "");
  expect_problem(examine("log.dir=file/run", "PATH=/nowhere"), "disk log.dir", "file is not a folder");
  // Even root cannot make files there.
  expect_problem(examine("snapshot.path=/proc/snapshots", "PATH=/nowhere"), "disk snapshot.path",
                 "cannot write");
}

TEST_F(Doctor, ADiskThatIsTooSmall) {
  const Finding disk = check_folder("snapshot.path", directory_ / "snapshots", int64_t{1} << 60);
  EXPECT_EQ(disk.verdict, Verdict::warning) << disk.found;
  EXPECT_TRUE(has(disk.advice, "snapshot.keep")) << disk.advice;
  EXPECT_EQ(check_folder("snapshot.path", directory_ / "a/b/c", 1).verdict, Verdict::ok);
  EXPECT_TRUE(fs::is_empty(directory_.path())) << "it left something behind";
}

TEST_F(Doctor, ABucketThatCannotBeUsed) {
  const std::string nobody = "AWS_EC2_METADATA_DISABLED=true HOME=/nowhere PATH=/nowhere";
  expect_problem(examine("snapshot.path=s3://bucket/run", nobody), "bucket snapshot.path",
                 "writing an object: no credentials");
  const std::string nowhere =
      nobody + " AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=hidden AWS_ENDPOINT_URL=http://127.0.0.1:1";
  const Outcome outcome = examine("snapshot.path=s3://bucket/run", nowhere);
  expect_problem(outcome, "bucket snapshot.path", "127.0.0.1");
  EXPECT_FALSE(has(outcome.out + outcome.errors, "hidden")) << "a secret was printed";
}

TEST_F(Doctor, SharedMemoryThatIsMissingOrSmall) {
  expect_problem(examine("--shm /nowhere/shm", "PATH=/nowhere"), "shared memory", "No such file");
  const Finding small = check_shared_memory(directory_.path(), int64_t{1} << 60);
  EXPECT_EQ(small.verdict, Verdict::warning);
  EXPECT_TRUE(has(small.advice, "--shm-size")) << small.advice;
  EXPECT_EQ(check_shared_memory(directory_.path(), 1).verdict, Verdict::ok);
}

TEST_F(Doctor, WantsWhatTheModelNeeds) {
  Job job;
  job.model.n_layer = 12;
  job.model.n_embd = 768;
  job.model.vocab_size = 50257;
  job.text.block_size = 1024;
  EXPECT_NEAR(static_cast<double>(estimate_parameters(job)), 124.4e6, 0.1e6);
}

TEST_F(Doctor, APortThatIsTaken) {
  const Socket taken = Socket::listen({.host = "127.0.0.1", .port = 0});
  expect_problem(examine("--listen " + taken.address().text(), "PATH=/nowhere"), "port",
                 "Address already in use");
}

TEST_F(Doctor, AddressesToListenOn) {
  expect_problem(examine("--listen 203.0.113.1:0", "PATH=/nowhere"), "port",
                 "Cannot assign requested address");
  expect_problem(examine("--listen nowhere.invalid:0", "PATH=/nowhere"), "port", "nowhere.invalid: ");
  EXPECT_EQ(finding(examine("--listen 127.0.0.1:0", "PATH=/nowhere"), "port").verdict, Verdict::ok);
  for (const char* address : {"127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "[::1", ":5"}) {
    const Outcome outcome = examine(std::string("--listen '") + address + "'", "PATH=/nowhere");
    EXPECT_EQ(outcome.exit_code, 2) << address;
  }
  const Endpoint ipv6 = Endpoint::parse("[fd00::1]:29400");
  EXPECT_EQ(ipv6.host, "fd00::1");
  EXPECT_EQ(ipv6.port, 29400);
  EXPECT_EQ(ipv6.text(), "[fd00::1]:29400");
}

TEST_F(Doctor, AConnectionThatIsRefused) {
  Socket socket = Socket::listen({.host = "127.0.0.1", .port = 0});
  const Endpoint address = socket.address();
  EXPECT_EQ(try_to_connect(address), "");
  socket = {};
  EXPECT_EQ(try_to_connect(address), "Connection refused");
}

TEST_F(Doctor, ANameThatLeadsNowhere) {
  EXPECT_EQ(check_host_name("nowhere.invalid").verdict, Verdict::warning);
  EXPECT_TRUE(has(check_host_name("localhost").found, "no other node can reach it"));
}

TEST_F(Doctor, CoresThatRanksDoNotGet) {
  Job job;
  EXPECT_EQ(check_binding(job, {.of_host = 8, .usable = 8, .quota = 0}, 4).verdict, Verdict::ok);
  EXPECT_EQ(check_binding(job, {.of_host = 8, .usable = 2, .quota = 0}, 4).verdict, Verdict::ok);
  const Finding bound = check_binding(job, {.of_host = 8, .usable = 1, .quota = 0}, 1);
  EXPECT_EQ(bound.verdict, Verdict::warning);
  EXPECT_TRUE(has(bound.advice, "--bind-to none")) << bound.advice;
  const Finding limited = check_binding(job, {.of_host = 64, .usable = 64, .quota = 4}, 1);
  EXPECT_TRUE(has(limited.advice, "container")) << limited.advice;
  job.compute.threads = 3;
  EXPECT_TRUE(has(check_binding(job, {.of_host = 8, .usable = 2, .quota = 0}, 4).advice, "train.threads"));
  const Cores here = Cores::of_this_process();
  EXPECT_LE(here.usable, here.of_host);
}

TEST_F(Doctor, AConfigurationThatTrainingWouldRefuse) {
  expect_problem(examine("train.stpes=3", "PATH=/nowhere"), "configuration", "train.stpes");
  expect_problem(examine("model.n_embd=10 model.n_head=3", "PATH=/nowhere"), "configuration", "n_head");
  EXPECT_EQ(examine("--unknown").exit_code, 2);
  for (const char* wrong : {"soon", "0", "-1", "nan"})
    EXPECT_EQ(examine(concat("--deadline ", wrong)).exit_code, 2) << wrong;
  EXPECT_EQ(run_command(program("doctor") + " --help").exit_code, 0);
}

TEST_F(Doctor, RanksAndHostsThatDiffer) {
  const auto place = [](const char* host, const char* processor) {
    return RankDevice{.host = host, .processor = processor, .gpu = {}, .gpu_id = {}};
  };
  const std::vector<RankDevice> ranks = {place("a", "Zen 4"), place("a", "Zen 4"), place("b", "Zen 2")};
  EXPECT_EQ(judge_places(ranks).found, "3 of them; ranks 0-1 on a: Zen 4; rank 2 on b: Zen 2");
  EXPECT_EQ(judge_processors(ranks, {"avx2", "avx2", "avx2"}).verdict, Verdict::warning);
  EXPECT_EQ(judge_processors({ranks[0], ranks[1]}, {"avx2", "avx2"}).verdict, Verdict::ok);
  const Finding builds = judge_processors({ranks[0], ranks[1]}, {"avx2", "avx512f"});
  EXPECT_EQ(builds.verdict, Verdict::warning);
  EXPECT_TRUE(has(builds.found, "avx2; avx512f")) << builds.found;

  EXPECT_EQ(judge_clocks(ranks, {0, 0.01, -0.2}).verdict, Verdict::ok);
  const Finding late = judge_clocks(ranks, {0, 0, -7.5});
  EXPECT_EQ(late.verdict, Verdict::warning);
  EXPECT_EQ(late.found, "7.500 s apart at most: a is ahead of b");
  EXPECT_EQ(judge_clocks(ranks, {0, 0, 3600}).verdict, Verdict::problem);
}

TEST_F(Doctor, UnderALauncherItLooksAtRanksTogether) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  for (const int ranks : {1, 3}) {
    const Outcome outcome =
        run_command("cd " + directory_.path() + " && " + mpirun(ranks) + program("doctor") + " --json");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.errors << outcome.out;
    EXPECT_TRUE(has(finding(outcome, "ranks").found, std::to_string(ranks) + " of them; "));
    for (const char* name :
         {"processors", "clocks", "hosts", "port", "binding", "disk log.dir", "shared memory"})
      EXPECT_EQ(finding(outcome, name).name, name) << outcome.out;
    EXPECT_EQ(finding(outcome, "two ranks").name, "absent") << "it started ranks under ranks";
  }
}

}  // namespace
}  // namespace lockstep
