// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/memory.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <thread>

#include "lockstep/core/error.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool is_sanitized = true;
#else
constexpr bool is_sanitized = false;
#endif

namespace lockstep {
namespace {

std::shared_ptr<std::byte> allocate_bytes(int64_t bytes) { return allocate(bytes, current_stream()); }

MemoryUse use_of(const std::string& label) {
  for (const MemoryUse& use : memory_table())
    if (use.label == label) return use;
  return {.label = label};
}

TEST(Memory, IsAlignedAndLargeEnough) {
  for (const int64_t bytes : {0, 1, 63, 64, 65, 1000, 1025, 4097, 100003, 1 << 20}) {
    const auto block = allocate_bytes(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block.get()) % 64, 0U) << bytes;
    std::fill_n(block.get(), bytes, std::byte{1});
  }
  EXPECT_THROW(allocate_bytes(-1), Error);
}

TEST(Memory, AFreedBlockServesTheNextRequestOfItsSize) {
  auto block = allocate_bytes(5000);
  const std::byte* address = block.get();
  block.reset();
  block = allocate_bytes(5001);
  EXPECT_EQ(block.get(), address);
  EXPECT_NE(allocate_bytes(5000).get(), address) << "the block is in use";
}

TEST(Memory, RequestsAreRoundedUpByAtMostAnEighth) {
  for (int64_t bytes = 1025; bytes < 100000; bytes = bytes * 9 / 8 + 1) {
    const MemoryScope scope("rounding");
    const auto block = allocate_bytes(bytes);
    EXPECT_GE(use_of("rounding").current_bytes, bytes);
    EXPECT_LE(use_of("rounding").current_bytes, bytes + bytes / 8);
  }
}

TEST(Memory, TheInnermostLabelCounts) {
  const MemoryScope outer("outer");
  const auto first = allocate_bytes(64);
  {
    const MemoryScope inner("inner");
    const auto second = allocate_bytes(128);
    EXPECT_EQ(use_of("inner").current_bytes, 128);
    EXPECT_EQ(use_of("outer").current_bytes, 64);
  }
  const auto third = allocate_bytes(192);
  EXPECT_EQ(use_of("inner").current_bytes, 0);
  EXPECT_EQ(use_of("inner").peak_bytes, 128);
  EXPECT_EQ(use_of("outer").current_bytes, 256);
}

TEST(Memory, ABlockIsFreedUnderTheLabelItWasMadeWith) {
  std::shared_ptr<std::byte> block;
  {
    const MemoryScope scope("maker");
    block = allocate_bytes(64);
  }
  const MemoryScope other("freer");
  block.reset();
  EXPECT_EQ(use_of("maker").current_bytes, 0);
  EXPECT_EQ(use_of("freer").current_bytes, 0);
}

TEST(Memory, LabelsBelongToAThreadAndTheTableToAll) {
  const MemoryScope scope("of one thread");
  std::shared_ptr<std::byte> block;
  const int64_t before = use_of("other").current_bytes;
  std::thread([&] { block = allocate_bytes(64); }).join();
  EXPECT_EQ(use_of("of one thread").current_bytes, 0);
  EXPECT_EQ(use_of("other").current_bytes, before + 64);
}

TEST(Memory, PeaksStayAndTheTotalIsTheSum) {
  {
    const MemoryScope scope("peaks");
    const auto first = allocate_bytes(640), second = allocate_bytes(640);
  }
  EXPECT_EQ(use_of("peaks").peak_bytes, 1280);
  int64_t sum = 0;
  const std::vector<MemoryUse> table = memory_table();
  for (size_t i = 0; i + 1 < table.size(); ++i) {
    sum += table[i].current_bytes;
    EXPECT_TRUE(i == 0 || table[i - 1].label < table[i].label);
  }
  EXPECT_EQ(table.back().label, "total");
  EXPECT_EQ(table.back().current_bytes, sum);
  EXPECT_GE(table.back().peak_bytes, 1280);
}

TEST(Memory, RunningOutNamesTheScopeAndLeavesTheTableRight) {
  if (is_sanitized) GTEST_SKIP() << "a sanitizer ends the program at such a request";
  const MemoryScope scope("too much");
  try {
    allocate_bytes(int64_t{1} << 60);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("MiB for too much"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("smaller batches"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("\n  total: "), std::string::npos) << error.what();
  }
  EXPECT_EQ(use_of("too much").current_bytes, 0);
}

}  // namespace
}  // namespace lockstep
