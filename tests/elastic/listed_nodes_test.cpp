// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "lockstep/elastic/launchers.h"
#include "tests/support/temporary_directory.h"

namespace lockstep {
namespace {

std::string hosts_of(const JobLayout& placement) {
  std::string text;
  for (const JobLayout::Host& host : placement.hosts) text += concat(host.mpirun_name, ":", host.ranks, " ");
  return text;
}

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

class HostFile : public testing::Test {
 protected:
  void SetUp() override {
    options_.hostfile = directory_ / "hosts";
    options_.nodes.most_nodes = 8;
    options_.nodes.local_address = "10.0.0.1";
    write_text(options_.hostfile, "host-a slots=2\n# host-x\nhost-b  # the default is one\n");
  }
  JobLayout placement() const { return ListedNodes(options_).gather(0.0).value(); }

  TemporaryDirectory directory_;
  LaunchOptions options_;
};

TEST_F(HostFile, SlotsCountUnlessANumberIsGiven) {
  ListedNodes by_slots(options_);
  const JobLayout found = by_slots.gather(0.0).value();
  EXPECT_EQ(hosts_of(found), "host-a:2 host-b:1 ");
  EXPECT_EQ(found.address, "10.0.0.1");
  const auto command = launch_command(Launcher::mpirun, found, "lockrun", "10.0.0.1:4000");
  EXPECT_TRUE(has(command, "host-a:2,host-b:1"));
  for (const std::string& word : command) EXPECT_EQ(word.find(by_slots.secret().bytes()), std::string::npos);
  options_.ranks_given = true;
  options_.ranks_per_node = 4;
  EXPECT_EQ(placement().ranks(), 8);
}

TEST_F(HostFile, IsReadAnewAndItsMistakesAreNamed) {
  ListedNodes nodes(options_);
  write_text(options_.hostfile, "localhost slots=3\n");
  EXPECT_EQ(hosts_of(nodes.gather(0.0).value()), "localhost:3 ");
  EXPECT_EQ(nodes.gather(0.0)->address, "127.0.0.1") << "no other host needs to reach it";
  write_text(options_.hostfile, "host-a\nhost-b slots=none\n");
  EXPECT_THROW(ListedNodes{options_}, UserError);
  options_.hostfile = directory_ / "missing";
  EXPECT_THROW(ListedNodes{options_}, UserError);
}

TEST_F(HostFile, AHostIsLeftOutIfEnoughRemain) {
  ListedNodes nodes(options_);
  const JobLayout all = nodes.gather(0.0).value();
  EXPECT_TRUE(nodes.leave_out(all.host_of(1)));
  EXPECT_EQ(hosts_of(nodes.gather(0.0).value()), "host-b:1 ");
  EXPECT_FALSE(nodes.leave_out(all.host_of(2)));
  EXPECT_EQ(hosts_of(nodes.gather(0.0).value()), "host-b:1 ");
  EXPECT_FALSE(ListedNodes(LaunchOptions{}).leave_out({.name = host_name()}));
}

TEST_F(HostFile, TheNumberOfNodesHasItsLimits) {
  options_.nodes.most_nodes = 1;
  EXPECT_EQ(hosts_of(placement()), "host-a:2 ");
  options_.nodes.most_nodes = options_.nodes.least_nodes = 3;
  options_.nodes.timeout_seconds = 60.0;
  EXPECT_FALSE(ListedNodes(options_).gather(0.0).has_value());
  options_.nodes.timeout_seconds = 0.0;
  try {
    ListedNodes(options_).gather(0.0);
    FAIL() << "nothing was thrown";
  } catch (const Error& failure) {
    EXPECT_NE(std::string(failure.what()).find("2 of at least 3 hosts"), std::string::npos) << failure.what();
  }
}

TEST(ListedNodes, AnAllocationHasItsTasks) {
  for (const auto& [name, value] :
       {std::pair{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "3"}, {"SLURM_NTASKS", "6"}})
    ::setenv(name, value, 1);
  LaunchOptions options;
  options.nodes.local_address = "10.0.0.1";
  JobLayout placement = ListedNodes(options).gather(0.0).value();
  for (const char* name : {"SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURM_NTASKS"}) ::unsetenv(name);
  EXPECT_EQ(placement.ranks(), 6);
  placement.limit(5);
  const auto command = launch_command(Launcher::srun, placement, "lockrun", "10.0.0.1:4000");
  for (const char* word : {"--ntasks=5", "--nodes=3", "--ntasks-per-node=2"}) EXPECT_TRUE(has(command, word));
}

TEST(JobLayout, TheLastRanksAreLeftOutFirst) {
  JobLayout placement{.hosts = {{"a", 2, "a"}, {"b", 3, "b"}, {"c", 1, "c"}}};
  placement.limit(9);
  EXPECT_EQ(hosts_of(placement), "a:2 b:3 c:1 ");
  placement.limit(4);
  EXPECT_EQ(hosts_of(placement), "a:2 b:2 ");
}

}  // namespace
}  // namespace lockstep
