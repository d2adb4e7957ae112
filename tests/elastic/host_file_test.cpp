// SPDX-License-Identifier: Apache-2.0
#include "elastic/host_file.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "core/error.h"
#include "tests/support/temporary_directory.h"

namespace lockstep {
namespace {

/// Hosts that an agent in the place of ssh reaches unless a file `down.<name>` is there.
class HostFileTest : public testing::Test {
 protected:
  void SetUp() override {
    write_text(directory_ / "agent", "#!/bin/sh\ntest ! -e \"$(dirname \"$0\")/down.$1\"\n");
    std::filesystem::permissions(directory_ / "agent", std::filesystem::perms::owner_all);
    ::setenv("OMPI_MCA_plm_rsh_agent", (directory_ / "agent").c_str(), 1);
    options_.hostfile = directory_ / "hosts";
    options_.nodes.most_nodes = 8;
    options_.nodes.local_address = "10.0.0.1";
    write_text(options_.hostfile, "host-a slots=2\n# host-x\nhost-b  # the default is one\n");
  }
  void TearDown() override { ::unsetenv("OMPI_MCA_plm_rsh_agent"); }
  void set_down(const std::string& host) const { write_text(directory_ / ("down." + host), ""); }

  TemporaryDirectory directory_;
  LaunchOptions options_;
};

TEST_F(HostFileTest, SlotsAndCommentsAreRead) {
  EXPECT_EQ(read_host_file(options_.hostfile), (std::vector<Host>{{"host-a", 2}, {"host-b", 1}}));
  write_text(options_.hostfile, "host-a\nhost-b slots=none\n");
  EXPECT_THROW(read_host_file(options_.hostfile), UserError);
  EXPECT_THROW(read_host_file(directory_ / "missing"), UserError);
}

TEST_F(HostFileTest, SlotsCountUnlessANumberIsGiven) {
  HostFile by_slots(options_);
  const Placement placement = by_slots.gather(0.0).value();
  EXPECT_EQ(placement.ranks, 3);
  EXPECT_EQ(placement.mpirun_arguments.at(1), "host-a:2,host-b:1");
  EXPECT_EQ(placement.address, "10.0.0.1");
  for (const std::string& argument : placement.mpirun_arguments)
    EXPECT_EQ(argument.find(by_slots.secret().bytes()), std::string::npos);
  options_.ranks_given = true;
  options_.ranks_per_node = 4;
  EXPECT_EQ(HostFile(options_).gather(0.0)->ranks, 8);
}

TEST_F(HostFileTest, AHostThatCannotBeReachedIsLeftOutUntilItIsBack) {
  HostFile hosts(options_);
  set_down("host-a");
  EXPECT_EQ(hosts.gather(0.0)->hosts, std::vector<std::string>{"host-b"});
  std::filesystem::remove(directory_ / "down.host-a");
  EXPECT_EQ(hosts.gather(0.0)->hosts, (std::vector<std::string>{"host-a", "host-b"}));
}

TEST_F(HostFileTest, TheNumberOfNodesHasItsLimits) {
  options_.nodes.most_nodes = 1;
  EXPECT_EQ(HostFile(options_).gather(0.0)->hosts, std::vector<std::string>{"host-a"});
  options_.nodes.most_nodes = options_.nodes.least_nodes = 2;
  options_.nodes.timeout_seconds = 60.0;
  set_down("host-b");
  EXPECT_FALSE(HostFile(options_).gather(0.0).has_value());
  options_.nodes.timeout_seconds = 0.0;
  try {
    HostFile(options_).gather(0.0);
    FAIL() << "it did not give up";
  } catch (const Error& failure) {
    EXPECT_NE(std::string(failure.what()).find("not reached: host-b"), std::string::npos) << failure.what();
  }
}

}  // namespace
}  // namespace lockstep
