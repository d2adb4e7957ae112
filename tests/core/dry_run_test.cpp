// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/dry_run.h"

#include <gtest/gtest.h>

#include "support/counting_pool.h"

namespace lockstep {
namespace {

std::shared_ptr<std::byte> take(int64_t bytes) { return allocate(bytes, current_stream()); }

std::vector<int64_t> in_use() {
  std::vector<int64_t> bytes;
  for (const MemoryUse& use : memory_table()) bytes.insert(bytes.end(), {use.current_bytes, use.peak_bytes});
  return bytes;
}

TEST(DryRun, CountsMoreThanThereIsAndMakesNothing) {
  const std::vector<int64_t> before = in_use();
  constexpr int64_t much = int64_t{1} << 50;
  {
    const DryRun dry;
    const auto first = take(much), second = take(much);
    EXPECT_NE(first.get(), second.get());
    EXPECT_EQ(dry.peak().used_bytes, 2 * much);
    EXPECT_EQ(dry.table().back().peak_bytes, 2 * much);
    copy_bytes(first.get(), current_stream(), second.get(), current_stream(), much);
  }
  EXPECT_EQ(in_use(), before);
  EXPECT_FALSE(mode_of(current_stream()).is_dry);
}

TEST(DryRun, PagesBelongToTheLabelThatUsesThemFirst) {
  const DryRun dry;
  {
    const MemoryScope scope("short");
    take(9000);
  }
  {
    const MemoryScope scope("long");
    take(9100);  // reuses the block, and 100 more bytes of it
    take(100);
  }
  EXPECT_EQ(dry.peak().used_by_label, (std::map<std::string, int64_t>{{"short", 9000}, {"long", 200}}));
  EXPECT_EQ(dry.peak().used_bytes, 9200);
  EXPECT_GE(dry.peak().mapped_bytes, 9200);
}

TEST(DryRun, WhatIsGivenBackToTheDeviceMakesRoom) {
  const DryRun dry;
  take(5000);
  release_cached_memory(current_stream());
  const auto other = take(4000);
  EXPECT_EQ(dry.peak().used_bytes, 5000);
  const auto more = take(3000);
  EXPECT_EQ(dry.peak().used_bytes, 7000);
}

TEST(DryRun, OtherThreadsLeaveItDry) {
  const DryRun dry;
  set_threads(2);
  EXPECT_TRUE(mode_of(cpu_stream()).is_dry);
  EXPECT_TRUE(mode_of(current_stream()).is_dry);
}

TEST(DryRun, APoolOfItsOwnCountsAsARealOneDoes) {
  const auto program = [] {
    std::vector<std::shared_ptr<std::byte>> kept;
    for (int64_t bytes = 10; bytes < 3'000'000; bytes = bytes * 7 / 3 + 1) {
      const MemoryScope scope(bytes % 2 ? "odd" : "even");
      kept.push_back(take(bytes));
      take(bytes / 2);
    }
  };
  const auto rows = [](const std::vector<MemoryUse>& table) {
    std::string text;
    for (const MemoryUse& use : table) text += use.label + " " + std::to_string(use.peak_bytes) + "\n";
    return text;
  };
  std::string counted, made;
  {
    const DryRun dry;
    program();
    counted = rows(dry.table());
  }
  CountingPool pool;
  {
    const StreamModeScope own({.memory = &pool});
    program();
    made = rows(pool.table());
  }
  EXPECT_EQ(counted, made);
}

}  // namespace
}  // namespace lockstep
