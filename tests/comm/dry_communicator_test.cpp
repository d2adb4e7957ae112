// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <atomic>
#include <gtest/gtest.h>
#include <memory>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/comm/world.h"
#include "lockstep/core/dry_run.h"
#include "lockstep/core/error.h"
#include "support/user_error.h"

namespace lockstep {
namespace {

TEST(DryCommunicator, GivesThisRanksBytesForThoseOfEveryRank) {
  DryCommunicator ranks(1, 3, 3);
  const std::array<int, 2> mine = {5, -5};
  std::array<int, 6> all{};
  ranks.all_gather(mine.data(), sizeof mine, all.data());
  EXPECT_EQ(all, (std::array<int, 6>{5, -5, 5, -5, 5, -5}));
  EXPECT_EQ(ranks.all_gather_text("one"), std::vector<std::string>(3, "one"));
  EXPECT_TRUE(ranks.on_every_rank(true));
  EXPECT_FALSE(ranks.on_every_rank(false));
}

TEST(DryCommunicator, LeavesEverythingElseAsItIs) {
  DryCommunicator ranks(1, 3, 3);
  std::array<float, 2> values = {1.5f, 2.5f};
  auto* const data = reinterpret_cast<std::byte*>(values.data());
  ranks.barrier();
  ranks.broadcast(data, sizeof values, 0);
  ranks.native_all_reduce(values.data(), 2);
  const std::array<SentMessage, 1> sends = {{{0, data, 4}}};
  const std::array<ReceivedMessage, 1> receives = {{{2, data + 4, 4}}};
  ranks.exchange(sends, receives);
  EXPECT_EQ(values, (std::array<float, 2>{1.5f, 2.5f}));
  EXPECT_EQ(ranks.broadcast_text("what another rank says too", 0), "what another rank says too");
}

TEST(DryCommunicator, RefusesWhatNoGroupOfRanksCouldDo) {
  DryCommunicator ranks(0, 2, 2);
  int value = 0;
  auto* const data = reinterpret_cast<std::byte*>(&value);
  const auto fails = [](const auto& call, const char* reason) { expect_contains(error_of(call), {reason}); };
  fails([&] { ranks.broadcast(&value, 4, 2); }, "from rank 2 of 2");
  fails([&] { ranks.broadcast(nullptr, 4, 0); }, "4 bytes at no address");
  fails([&] { ranks.all_gather(&value, -4, &value); }, "-4 bytes");
  fails([&] { ranks.native_all_reduce(nullptr, 1); }, "4 bytes at no address");
  const std::array<SentMessage, 1> sent = {{{2, data, 4}}};
  const std::array<ReceivedMessage, 1> received = {{{2, data, 4}}};
  fails([&] { ranks.exchange(sent, {}); }, "rank 2 of 2");
  fails([&] { ranks.exchange({}, received); }, "rank 2 of 2");
  fails([&] { ranks.share(64); }, "only in a dry run");
  fails([] { DryCommunicator(2, 2, 2); }, "rank 2 of 2");
  fails([] { DryCommunicator(0, 2, 3); }, "3 of 2 ranks");
}

TEST(DryCommunicator, SharesMemoryOfOneHostThatIsCountedAndNotMade) {
  constexpr int64_t bytes = int64_t{1} << 50;
  const DryRun dry;
  {
    const MemoryScope scope("gradients");
    const auto shared = DryCommunicator(3, 4, 4).share(bytes);
    ASSERT_NE(shared, nullptr);
    EXPECT_EQ(shared->of_rank.size(), 4U);
    EXPECT_EQ(shared->bytes, bytes);
    EXPECT_EQ(dry.peak().used_by_label.at("gradients"), bytes);
    const std::atomic<bool> cancelled = false;
    SharedBarrier(shared, 3).wait(1.0, cancelled);
  }
  EXPECT_EQ(DryCommunicator(3, 4, 2).share(bytes), nullptr) << "on two hosts";
}

TEST(DryCommunicator, MakesAWorldWhoseRanksAgree) {
  const World world(std::make_shared<DryCommunicator>(1, 4, 4));
  EXPECT_EQ(world.rank(), 1);
  EXPECT_EQ(world.size(), 4);
  require_equal_on_all_ranks(world.communicator(), "all", "a = 1\nb = 2\n");
  bool has_run = false;
  on_first_rank(world, [&] { has_run = true; });
  EXPECT_FALSE(has_run);
}

}  // namespace
}  // namespace lockstep
