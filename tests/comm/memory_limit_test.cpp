// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/memory_limit.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(MemoryLimits, AreSomethingThatThisTestFitsInto) {
  for (const MemoryLimit& limit : memory_limits(World::alone())) {
    EXPECT_GT(limit.bytes, 1 << 26);
    EXPECT_LT(limit.bytes, 1e16);
    EXPECT_NE(limit.owner.find("iB"), std::string::npos) << limit.owner;
  }
  EXPECT_GT(process_memory().most_resident, 1 << 20);
  EXPECT_GE(process_memory().mapped, process_memory().resident);
}

}  // namespace
}  // namespace lockstep
