// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/shared_memory.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

std::string fresh_name() { return concat("/lockstep-test-", ::getpid()); }

std::shared_ptr<SharedMemory> counters(int ranks, uint32_t begin) {
  auto memory = std::make_shared<SharedMemory>();
  memory->bytes = 64;
  for (int rank = 0; rank < ranks; ++rank) {
    auto block = std::shared_ptr<uint32_t[]>(new uint32_t[16]{begin});
    memory->owners.emplace_back(block, reinterpret_cast<std::byte*>(block.get()));
    memory->of_rank.push_back(memory->owners.back().get());
  }
  return memory;
}

TEST(SharedBarrier, NobodyPassesBeforeTheLastHasCome) {
  constexpr int ranks = 3;
  const auto memory = counters(ranks, 0);
  const std::atomic<bool> never{false};
  int values[ranks] = {};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      SharedBarrier barrier(memory, rank);
      for (int round = 1; round <= 500; ++round) {
        values[rank] = round;
        barrier.wait(60, never);
        // The memory is not atomic. If the barrier does not order it, this check or a race detector fails.
        for (int value : values) ASSERT_EQ(value, round);
        barrier.wait(60, never);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(SharedBarrier, NamesWhoIsMissing) {
  const std::atomic<bool> never{false};
  SharedBarrier barrier(counters(3, 0), 1);
  try {
    barrier.wait(0.05, never);
    FAIL() << "the barrier did not wait for the other ranks";
  } catch (const Error& failure) {
    EXPECT_STREQ(failure.what(), "waited 0.05 s; rank 0, 2 did not arrive");
  }
}

TEST(SharedBarrier, ComparesCountersAcrossTheirWrapAround) {
  // A new barrier is at round 0. Peers at 2^32 - 1 are one round behind, and peers at 1 have already arrived.
  const std::atomic<bool> never{false};
  SharedBarrier waits(counters(2, 0xffffffffu), 0);
  EXPECT_THROW(waits.wait(0.05, never), Error);
  SharedBarrier passes(counters(2, 1), 0);
  EXPECT_NO_THROW(passes.wait(60, never));
}

TEST(SharedBarrier, EndsWhenCancelled) {
  const std::atomic<bool> cancelled{true};
  SharedBarrier barrier(counters(2, 0), 0);
  EXPECT_THROW(barrier.wait(1e6, cancelled), Error);
}

TEST(MapShared, MappingsOfOneNameShareTheirBytes) {
  std::string problem;
  const auto created = map_shared(fresh_name(), 5000, true, problem);
  ASSERT_TRUE(created) << problem;
  const auto opened = map_shared(fresh_name(), 5000, false, problem);
  ASSERT_TRUE(opened) << problem;
  EXPECT_FALSE(map_shared(fresh_name(), 5000, true, problem)) << "the name is taken";
  EXPECT_NE(problem.find(fresh_name()), std::string::npos) << problem;
  unlink_shared(fresh_name());
  EXPECT_NE(created.get(), opened.get());
  EXPECT_EQ(opened.get()[4999], std::byte{0});
  created.get()[4999] = std::byte{42};
  EXPECT_EQ(opened.get()[4999], std::byte{42}) << "the memory outlives its name";
  EXPECT_FALSE(map_shared(fresh_name(), 5000, false, problem)) << "the name is gone";
}

TEST(MapShared, WhatDoesNotFitGivesAReasonAndLeavesNoName) {
  std::string problem;
  EXPECT_FALSE(map_shared(fresh_name(), int64_t{1} << 60, true, problem));
  EXPECT_NE(problem.find("1099511627776 MiB of shared memory"), std::string::npos) << problem;
  EXPECT_FALSE(std::filesystem::exists("/dev/shm" + fresh_name()));
}

}  // namespace
}  // namespace lockstep
