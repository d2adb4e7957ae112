// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lockstep/keeper/diagnosis.h"
#include "tests/support/temporary_directory.h"

namespace lockstep {
namespace {

/// Folders with the files in which the kernel describes a process, its control groups and the machine.
class MemoryKillsTest : public testing::Test {
 protected:
  MemoryKillsTest() {
    write("machine/meminfo", "MemTotal:       16777216 kB\n");
    write("machine/vmstat", "pgfault 9\noom_kill 3\n");
  }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(folder_ / name).parent_path());
    write_text(folder_ / name, text);
  }
  MemoryKills kills() const {
    return MemoryKills(ControlGroups(folder_ / "process", folder_ / "groups"), folder_ / "machine");
  }

  const TemporaryDirectory folder_;
};

TEST_F(MemoryKillsTest, AreThoseOfTheGroupAndHaveTheLowestLimit) {
  write("process/cgroup", "1:cpu:/\n0::/job/rank\n");
  write("groups/job/rank/memory.events", "low 0\noom 5\noom_kill 1\noom_group_kill 0\n");
  write("groups/job/rank/memory.max", "max\n");
  write("groups/job/memory.max", "4294967296\n");
  const MemoryKills found = kills();
  write("machine/vmstat", "oom_kill 4\n");
  EXPECT_EQ(found.reason(), "") << "the kernel has killed a process of another group";
  write("groups/job/rank/memory.events", "low 0\noom 6\noom_kill 2\noom_group_kill 0\n");
  EXPECT_EQ(found.reason(), "the limit of its control group is 4.0 GiB");
}

TEST_F(MemoryKillsTest, AreCountedByVersion1OfControlGroupsToo) {
  write("process/cgroup", "4:memory:/job\n1:cpu:/\n0::/\n");
  write("groups/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  write("groups/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  const MemoryKills found = kills();
  write("groups/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  EXPECT_EQ(found.reason(), "the machine ran out of memory");
}

TEST_F(MemoryKillsTest, AreThoseOfTheMachineWithoutAGroup) {
  write("process/cgroup", "0::/\n");
  const MemoryKills found = kills();
  EXPECT_EQ(found.reason(), "");
  write("machine/vmstat", "oom_kill 4\n");
  EXPECT_EQ(found.reason(), "the machine ran out of memory");
}

}  // namespace
}  // namespace lockstep
