// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "support/cluster.h"
#include "support/namespace_hosts.h"
#include "support/run_result.h"

namespace lockstep {
namespace {

const std::string secret = "correct-horse-battery-staple-4711";
const std::string variables = "env ";

/// Tests of lockrun on several hosts that are made of namespaces.
class Nodes : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(program("lockrun_host"))) LOCKSTEP_SKIP_OR_FAIL("lockrun_host is missing");
    const std::string obstacle = NamespaceHosts::obstacle();
    if (!obstacle.empty()) LOCKSTEP_SKIP_OR_FAIL(obstacle);
  }

  std::string results() const { return directory_ / "run"; }

  /// Returns the training command. Its results and snapshots are on the first host only.
  std::string training(int steps) const {
    return program("train_mlp") + " train.epochs=0 train.steps=" + std::to_string(steps) +
           " dist.replicas=4 train.threads=1 train.device=cpu log.every_steps=100000 dist.timeout_s=20 "
           "snapshot.every_steps=50 "
           "snapshot.path=" +
           (directory_ / "snapshots") + " log.dir=" + results();
  }

  /// Returns the bits of the same run on this host alone.
  std::vector<std::string> undisturbed_bits(int steps) const {
    const TemporaryDirectory alone;
    const Outcome outcome =
        run_command(program("train_mlp") + " train.epochs=0 train.steps=" + std::to_string(steps) +
                    " dist.replicas=4 train.threads=1 train.device=cpu log.every_steps=100000 "
                    "snapshot.path=none log.dir=" +
                    (alone / "run"));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
    return read_bits(alone / "run");
  }

  std::string lockrun(const std::string& nodes, int node_rank, const std::string& endpoint,
                      const std::string& options = "", int ranks = 2) const {
    return variables + "LOCKRUN_SECRET=" + secret + " " + program("lockrun") + " --nnodes " + nodes +
           " --node-rank " + std::to_string(node_rank) + " --rdzv-endpoint " + endpoint + " --nproc " +
           std::to_string(ranks) + " " + options + " -- ";
  }

  /// Returns the address to which the keepers on the first host are connected.
  static std::string supervisor(NamespaceHosts& hosts) {
    auto command = hosts.start(
        0, "sh -c \"cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -A1 -x -m1 -e --keeper | tail -n 1\"");
    command.wait();
    return command.out().substr(0, command.out().find('\n'));
  }

  int steps_done() const {
    const std::string lines = read_text(results() + "/metrics.jsonl");
    return int(std::count(lines.begin(), lines.end(), '\n'));
  }

  TemporaryDirectory directory_;
};

constexpr const char* endpoint = "10.77.0.1:29400";
/// The steps of a run that is disturbed. The disturbance arrives long before the last one.
constexpr int long_run = 2500;

TEST_F(Nodes, TwoTrainTheSameBitsAsOne) {
  NamespaceHosts hosts(2, "4", {directory_.path()});
  auto second = hosts.start(1, lockrun("2", 1, endpoint) + training(300));
  auto first = hosts.start(0, lockrun("2", 0, endpoint) + training(300));
  EXPECT_EQ(first.wait(), 0) << first.errors();
  EXPECT_EQ(second.wait(), 0) << second.errors();
  EXPECT_TRUE(first.says("node 1 (host-b, 10.77.0.2) joined", 0)) << first.errors();
  EXPECT_EQ(read_bits(results()), undisturbed_bits(300));
}

TEST_F(Nodes, TheSecretIsInNoFrameOfARun) {
  NamespaceHosts hosts(2, "4", {directory_.path()});
  hosts.record(directory_ / "frames");
  auto second = hosts.start(1, lockrun("2", 1, endpoint) + training(20));
  auto first = hosts.start(0, lockrun("2", 0, endpoint) + training(20));
  EXPECT_EQ(first.wait(), 0) << first.errors();
  EXPECT_EQ(second.wait(), 0) << second.errors();
  const std::string frames = read_text(directory_ / "frames");
  EXPECT_NE(frames.find("name_space"), std::string::npos) << "the start of the hosts was not seen";
  EXPECT_NE(frames.find("train_mlp"), std::string::npos) << "the start of the program was not seen";
  for (size_t at = 0; at + 12 <= secret.size(); at += 4)
    EXPECT_EQ(frames.find(secret.substr(at, 12)), std::string::npos);
}

TEST_F(Nodes, OneAndThreeRanksTrainOverIPv6Alone) {
  NamespaceHosts hosts(2, "6", {directory_.path()});
  auto second = hosts.start(1, lockrun("2", 1, "[fd77::1]:29400", "", 3) + training(100));
  auto first = hosts.start(0, lockrun("2", 0, "[fd77::1]:29400", "", 1) + training(100));
  EXPECT_EQ(first.wait(), 0) << first.errors();
  EXPECT_EQ(second.wait(), 0) << second.errors();
  EXPECT_EQ(read_bits(results()), undisturbed_bits(100));
}

// Containers on several machines may have one name.
TEST_F(Nodes, TwoOfOneNameTrain) {
  NamespaceHosts hosts(2, "4", {directory_.path()});
  for (const int host : {0, 1}) ASSERT_EQ(hosts.run(host, "hostname same"), 0);
  auto second = hosts.start(1, lockrun("2", 1, endpoint) + training(100));
  auto first = hosts.start(0, lockrun("2", 0, endpoint) + training(100));
  EXPECT_EQ(first.wait(60), 0) << first.errors();
  EXPECT_EQ(second.wait(60), 0) << second.errors();
  EXPECT_EQ(read_bits(results()), undisturbed_bits(100));
  // Each node prints the output of its own ranks.
  const std::string print = "bash -c 'echo group $GROUP_RANK'";
  auto there = hosts.start(1, lockrun("2", 1, endpoint) + print);
  auto here = hosts.start(0, lockrun("2", 0, endpoint) + print);
  EXPECT_EQ(here.wait(60), 0) << here.errors();
  EXPECT_EQ(there.wait(60), 0) << there.errors();
  EXPECT_EQ(here.out() + there.out(), "group 0\ngroup 0\ngroup 1\ngroup 1\n");
}

TEST_F(Nodes, TheOneThatOwnsTheAddressNeedsNoRank) {
  NamespaceHosts hosts(2, "4", {directory_.path()});
  const std::string line = variables + "LOCKRUN_SECRET=" + secret + " " + program("lockrun") +
                           " --nnodes 2 --rdzv-endpoint 10.77.0.1:29400 --nproc 1 -- " + training(50);
  auto second = hosts.start(1, line);
  auto first = hosts.start(0, line);
  EXPECT_EQ(first.wait(), 0) << first.errors();
  EXPECT_EQ(second.wait(), 0) << second.errors();
  EXPECT_TRUE(second.says("as node 1", 0)) << second.errors();
}

TEST_F(Nodes, TheLossOfOneIsSurvived) {
  NamespaceHosts hosts(2, "4", {directory_.path()});
  auto second = hosts.start(1, lockrun("1:2", 1, endpoint) + training(long_run));
  ASSERT_TRUE(second.says("waiting for the rendezvous")) << second.errors();
  auto first = hosts.start(0, lockrun("1:2", 0, endpoint) + training(long_run));
  ASSERT_TRUE(eventually([&] { return steps_done() > 60; })) << first.errors();
  hosts.switch_off(1);
  EXPECT_EQ(first.wait(), 0) << first.errors();
  EXPECT_TRUE(first.says("node 1 (host-b, 10.77.0.2) is lost", 0)) << first.errors();
  EXPECT_EQ(read_bits(results()), undisturbed_bits(long_run));
  EXPECT_FALSE(hosts.runs(0, "train_mlp"));
}

TEST_F(Nodes, OneThatComputesWrongIsLeftOut) {
  NamespaceHosts hosts(3, "4", {directory_.path()});
  const std::string counting = program("elastic_rank") + " " + directory_.path() + " 10 0:1:6:wrong";
  const std::string options = "--rdzv-conf last_call_timeout=1";
  auto third = hosts.start(2, lockrun("2:3", 2, endpoint, options, 1) + counting);
  auto second = hosts.start(1, lockrun("2:3", 1, endpoint, options, 1) + counting);
  auto first = hosts.start(0, lockrun("2:3", 0, endpoint, options, 1) + counting);
  EXPECT_EQ(first.wait(60), 0) << first.errors();
  EXPECT_EQ(second.wait(60), 0) << second.errors();
  EXPECT_EQ(third.wait(60), 0) << third.errors();
  EXPECT_TRUE(first.says("rank 1 computed wrong; host host-b is left out from here on", 0)) << first.errors();
  EXPECT_EQ(read_text(directory_ / "starts"), "0 3 0\n1 2 5\n");
}

TEST_F(Nodes, AStoppedHostOfAnotherNodeEndsTheAttempt) {
  NamespaceHosts hosts(2, "4", {directory_.path()});
  auto second = hosts.start(1, lockrun("2", 1, endpoint) + training(20000));
  auto first = hosts.start(0, lockrun("2", 0, endpoint, "--max-restarts 0") + training(20000));
  ASSERT_TRUE(eventually([&] { return steps_done() > 20; })) << first.errors();
  hosts.run(1, "sh -c 'kill -STOP $(pgrep -x lockrun_host)'");
  EXPECT_EQ(first.wait(), 1) << first.errors();
  EXPECT_TRUE(first.says("lockrun_host on host-b has sent nothing for 15 s", 0)) << first.errors();
  EXPECT_EQ(second.wait(), 1) << second.errors();
  for (const char* name : {"train_mlp", "lockrun_host"}) EXPECT_FALSE(hosts.runs(1, name)) << name;
}

TEST_F(Nodes, ACutCableIsSurvivedAndItsFarEndCleansUp) {
  NamespaceHosts hosts(2, "4", {directory_.path()});
  auto second = hosts.start(1, lockrun("1:2", 1, endpoint) + training(long_run));
  ASSERT_TRUE(second.says("waiting for the rendezvous")) << second.errors();
  auto first = hosts.start(0, lockrun("1:2", 0, endpoint) + training(long_run));
  ASSERT_TRUE(eventually([&] { return steps_done() > 60; })) << first.errors();
  hosts.cut(1);
  EXPECT_EQ(first.wait(), 0) << first.errors();
  EXPECT_EQ(read_bits(results()), undisturbed_bits(long_run));
  EXPECT_TRUE(second.says("lost the rendezvous")) << second.errors();
  EXPECT_TRUE(eventually([&] { return !hosts.runs(1, "train_mlp") && !hosts.runs(1, "lockrun_host"); }));
}

TEST_F(Nodes, ACableThatIsMendedBringsTheNodeBack) {
  NamespaceHosts hosts(2, "4", {directory_.path()});
  auto second = hosts.start(1, lockrun("2", 1, endpoint) + training(long_run));
  auto first = hosts.start(0, lockrun("2", 0, endpoint) + training(long_run));
  ASSERT_TRUE(eventually([&] { return steps_done() > 60; })) << first.errors();
  hosts.cut(1);
  ASSERT_TRUE(first.says("is lost")) << first.errors();
  ASSERT_TRUE(second.says("lost the rendezvous")) << second.errors();
  hosts.mend(1);
  EXPECT_EQ(first.wait(), 0) << first.errors();
  EXPECT_EQ(second.wait(), 0) << second.errors();
  EXPECT_EQ(read_bits(results()), undisturbed_bits(long_run));
}

TEST_F(Nodes, ASupervisorThatIsKilledLeavesNothingAndCanBeStartedAgain) {
  NamespaceHosts hosts(2, "4", {directory_.path()});
  auto second = hosts.start(1, lockrun("2", 1, endpoint) + training(long_run));
  auto first = hosts.start(0, lockrun("2", 0, endpoint) + training(long_run));
  ASSERT_TRUE(eventually([&] { return steps_done() > 60; })) << first.errors();
  hosts.signal(0, first, "KILL");
  EXPECT_EQ(first.wait(), 137);
  ASSERT_TRUE(second.says("lost the rendezvous")) << second.errors();
  for (const int host : {0, 1})
    for (const char* name : {"train_mlp", "lockrun_host"})
      EXPECT_TRUE(eventually([&] { return !hosts.runs(host, name); })) << name << " on host " << host;
  auto again = hosts.start(0, lockrun("2", 0, endpoint) + training(long_run) + " snapshot.resume=auto");
  EXPECT_EQ(again.wait(), 0) << again.errors();
  EXPECT_EQ(second.wait(), 0) << second.errors();
  EXPECT_EQ(read_bits(results()), undisturbed_bits(long_run));
}

TEST_F(Nodes, AStopAskedForOnOneStopsAllAfterASnapshot) {
  NamespaceHosts hosts(2, "4", {directory_.path()});
  auto second = hosts.start(1, lockrun("2", 1, endpoint) + training(20000));
  auto first = hosts.start(0, lockrun("2", 0, endpoint) + training(20000));
  ASSERT_TRUE(eventually([&] { return steps_done() > 20; })) << first.errors();
  hosts.signal(1, second, "TERM");
  EXPECT_EQ(first.wait(), 75) << first.errors();
  EXPECT_TRUE(first.says("node 1 (host-b, 10.77.0.2) was asked to stop the run", 0)) << first.errors();
  EXPECT_EQ(second.wait(), 75) << second.errors();
}

TEST_F(Nodes, ABadCommandLineEndsAllWithTwo) {
  NamespaceHosts hosts(2, "4", {directory_.path()});
  auto second = hosts.start(1, lockrun("2", 1, endpoint) + program("train_mlp") + " train.no_such_key=1");
  auto first = hosts.start(0, lockrun("2", 0, endpoint) + program("train_mlp") + " train.no_such_key=1");
  EXPECT_EQ(first.wait(), 2) << first.errors();
  EXPECT_EQ(second.wait(), 2) << second.errors();
}

TEST_F(Nodes, AStrangerStartsNothing) {
  NamespaceHosts hosts(2, "4", {directory_.path()});
  auto first = hosts.start(0, lockrun("2", 0, endpoint, "--rdzv-timeout 5") + training(50));
  ASSERT_TRUE(first.says("nodes meet at 10.77.0.1:29400")) << first.errors();
  auto stranger = hosts.start(
      1, variables + "LOCKRUN_SECRET=" + std::string(32, 'x') + " " + program("lockrun") +
             " --nnodes 2 --node-rank 1 --rdzv-endpoint 10.77.0.1:29400 --nproc 2 -- " + training(50));
  EXPECT_EQ(stranger.wait(), 2) << stranger.errors();
  EXPECT_TRUE(stranger.says("the other side has a different secret", 0)) << stranger.errors();
  EXPECT_TRUE(first.says("refused 10.77.0.2:")) << first.errors();
  const int code = first.wait();
  EXPECT_NE(code, 0);
  EXPECT_NE(code, 2);
  EXPECT_TRUE(first.says("node 1 did not join at 10.77.0.1:29400", 0)) << first.errors();
  EXPECT_EQ(steps_done(), 0);
}

// Set LOCKSTEP_STRANGERS=100000 for a real flood.
TEST_F(Nodes, AFloodOfStrangersDisturbsNobody) {
  const char* wanted = std::getenv("LOCKSTEP_STRANGERS");
  const int connections = wanted != nullptr ? std::atoi(wanted) : 10000;
  const int steps = long_run + connections / 10;
  const std::string crowd = concat(" ", connections / 20, " ", connections);
  NamespaceHosts hosts(3, "4", {directory_.path()});
  auto first =
      hosts.start(0, lockrun("1:2", 0, endpoint, "--rdzv-conf last_call_timeout=1") + training(steps));
  ASSERT_TRUE(eventually([&] { return steps_done() > 60; })) << first.errors();
  auto at_rendezvous = hosts.start(2, program("strangers") + " " + endpoint + crowd);
  auto at_supervisor = hosts.start(2, program("strangers") + " " + supervisor(hosts) + crowd);
  ASSERT_TRUE(first.says("refused 10.77.0.3:")) << first.errors();
  auto second = hosts.start(1, lockrun("1:2", 1, endpoint) + training(steps));
  EXPECT_TRUE(first.says("node 1 (host-b, 10.77.0.2) joined")) << first.errors();
  hosts.run(0, "sh -c 'kill -KILL $(pgrep -o -x train_mlp)'");
  EXPECT_EQ(first.wait(), 0) << first.errors();
  EXPECT_EQ(second.wait(), 0) << second.errors();
  EXPECT_TRUE(at_rendezvous.says("made ")) << at_rendezvous.errors();
  EXPECT_TRUE(at_supervisor.says("made ")) << at_supervisor.errors();
  EXPECT_EQ(read_bits(results()), undisturbed_bits(steps));
  const std::string log = first.errors();
  EXPECT_EQ(log.find("restarts in"), log.rfind("restarts in")) << "more than one restart: " << log;
  EXPECT_NE(log.find("was ended by SIGKILL"), std::string::npos) << log;
  EXPECT_NE(log.find("strangers, the last 10.77.0.3:"), std::string::npos) << log;
  EXPECT_LT(std::count(log.begin(), log.end(), '\n'), 100) << log;
}

TEST_F(Nodes, AnotherRunsNodeIsRefusedByName) {
  NamespaceHosts hosts(2, "4", {directory_.path()});
  auto first = hosts.start(0, lockrun("2", 0, endpoint, "--rdzv-id blue") + training(50));
  auto second = hosts.start(1, lockrun("2", 1, endpoint, "--rdzv-id green") + training(50));
  EXPECT_EQ(second.wait(), 2) << second.errors();
  EXPECT_TRUE(second.says("this is run \"blue\", not \"green\"", 0)) << second.errors();
}

TEST_F(Nodes, WithoutASecretOrAtALoopbackAddressNothingStarts) {
  NamespaceHosts hosts(1, "46", {directory_.path()});
  auto open = hosts.start(0, variables + program("lockrun") + " --nnodes 2 --node-rank 0 --rdzv-endpoint " +
                                 endpoint + " -- true");
  EXPECT_EQ(open.wait(), 2) << open.errors();
  EXPECT_TRUE(open.says("openssl rand -hex 32", 0)) << open.errors();
  for (const std::string useless : {"127.0.0.1:29400", "localhost:29400", "[::1]:29400", "0.0.0.0:29400"}) {
    auto local = hosts.start(0, lockrun("2", 0, useless) + "true");
    EXPECT_EQ(local.wait(), 2) << local.errors();
    EXPECT_TRUE(local.says("other nodes cannot reach", 0)) << local.errors();
    EXPECT_TRUE(local.says("10.77.0.1 (eth0)", 0)) << local.errors();
  }
}

TEST_F(Nodes, ATakenPortIsNamedWithItsProcess) {
  NamespaceHosts hosts(1, "4", {directory_.path()});
  auto first = hosts.start(0, lockrun("2", 0, endpoint) + "true");
  ASSERT_TRUE(first.says("nodes meet at")) << first.errors();
  auto again = hosts.start(0, variables + "LOCKRUN_SECRET=" + secret + " " + program("lockrun") +
                                  " --nnodes 2 --rdzv-endpoint " + endpoint + " -- true");
  EXPECT_EQ(again.wait(), 2) << again.errors();
  EXPECT_TRUE(again.says("10.77.0.1:29400", 0)) << again.errors();
  EXPECT_TRUE(again.says("lockrun (pid", 0)) << again.errors();
  EXPECT_TRUE(again.says("start it with --node-rank 1 or higher", 0)) << again.errors();
}

}  // namespace
}  // namespace lockstep
