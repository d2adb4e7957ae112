// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/communicator.h"

#include <chrono>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "lockstep/comm/flight_recorder.h"
#include "lockstep/comm/local_communicator.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

/// Returns the text that run_ranks throws. It is empty if run_ranks throws nothing.
std::string failure_of(int ranks, const std::function<void(Communicator&)>& body) {
  try {
    run_ranks(ranks, body);
  } catch (const std::exception& failure) {
    return failure.what();
  }
  return {};
}

std::byte* bytes_of(void* data) { return static_cast<std::byte*>(data); }

class EveryGroup : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, EveryGroup, testing::Range(1, 6));

TEST_P(EveryGroup, NobodyPassesABarrierBeforeTheLastHasCome) {
  std::atomic<int> arrivals{0};
  run_ranks(GetParam(), [&](Communicator& ranks) {
    for (int round = 1; round <= 50; ++round) {
      ++arrivals;
      ranks.barrier();
      ASSERT_EQ(arrivals.load(), round * ranks.size());
      ranks.barrier();
    }
  });
}

TEST_P(EveryGroup, BroadcastCopiesTheRootsBytes) {
  run_ranks(GetParam(), [](Communicator& ranks) {
    for (int root = 0; root < ranks.size(); ++root) {
      std::vector<int> values(1000, ranks.rank());
      ranks.broadcast(values.data(), 4000, root);
      ASSERT_EQ(values, std::vector<int>(1000, root));
      ranks.broadcast(nullptr, 0, root);
    }
  });
}

TEST_P(EveryGroup, BlocksAreGatheredInTheOrderOfTheRanks) {
  run_ranks(GetParam(), [](Communicator& ranks) {
    const std::vector<int> mine = {ranks.rank(), -ranks.rank(), 7};
    std::vector<int> all(3 * static_cast<size_t>(ranks.size()));
    ranks.all_gather(mine.data(), 12, all.data());
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const auto block = all.begin() + 3 * rank;
      ASSERT_EQ(std::vector<int>(block, block + 3), (std::vector<int>{rank, -rank, 7}));
    }
  });
}

TEST_P(EveryGroup, TextsKeepTheirLengths) {
  run_ranks(GetParam(), [](Communicator& ranks) {
    const auto text_of = [](int rank) { return std::string(static_cast<size_t>(rank * rank), 'x') + '\0'; };
    const auto texts = ranks.all_gather_text(ranks.rank() == 1 ? "" : text_of(ranks.rank()));
    ASSERT_EQ(texts.size(), static_cast<size_t>(ranks.size()));
    for (int rank = 0; rank < ranks.size(); ++rank)
      ASSERT_EQ(texts[static_cast<size_t>(rank)], rank == 1 ? "" : text_of(rank));
    for (const std::string& nothing : ranks.all_gather_text("")) ASSERT_EQ(nothing, "");
    const int last = ranks.size() - 1;
    ASSERT_EQ(ranks.broadcast_text(ranks.rank() == last ? "from the last" : "", last), "from the last");
    ASSERT_EQ(ranks.broadcast_text(ranks.rank() == 0 ? "" : "not mine", 0), "");
  });
}

TEST_P(EveryGroup, ExchangedMessagesKeepTheirOrderPerPair) {
  run_ranks(GetParam(), [](Communicator& ranks) {
    constexpr int messages = 3;
    // Message m from a to b has (m * 5) % 7 numbers, so one message is empty. All its numbers are a code of
    // a, b and m.
    const auto length = [](int m) { return (m * 5) % 7; };
    const auto code = [](int from, int to, int m) { return 100 * from + 10 * to + m; };
    std::vector<std::vector<int>> out, in;
    std::vector<SentMessage> sends;
    std::vector<ReceivedMessage> receives;
    for (int m = 0; m < messages; ++m)
      for (int peer = 0; peer < ranks.size(); ++peer) {
        const auto count = static_cast<size_t>(length(m));
        auto& sent = out.emplace_back(count, code(ranks.rank(), peer, m));
        auto& received = in.emplace_back(count, -1);
        sends.push_back({peer, bytes_of(sent.data()), static_cast<int64_t>(4 * count)});
        receives.push_back({peer, bytes_of(received.data()), static_cast<int64_t>(4 * count)});
      }
    ranks.exchange(sends, receives);
    for (int m = 0; m < messages; ++m)
      for (int peer = 0; peer < ranks.size(); ++peer)
        for (int value : in[static_cast<size_t>(m * ranks.size() + peer)])
          ASSERT_EQ(value, code(peer, ranks.rank(), m));
  });
}

TEST_P(EveryGroup, NativeSumsOfIntegersAreExactOnEveryRank) {
  run_ranks(GetParam(), [](Communicator& ranks) {
    std::vector<float> values(257);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>((ranks.rank() + 1) * static_cast<int>(i));
    ranks.native_all_reduce(values.data(), 257);
    const int sum_of_ranks = ranks.size() * (ranks.size() + 1) / 2;
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], static_cast<float>(sum_of_ranks * static_cast<int>(i)));
  });
}

TEST_P(EveryGroup, SharedBlocksAreZeroedAlignedAndSeenByAll) {
  run_ranks(GetParam(), [](Communicator& ranks) {
    for (int64_t bytes : {int64_t{100}, int64_t{4096}}) {
      const auto memory = ranks.share(bytes);
      ASSERT_TRUE(memory);
      ASSERT_EQ(memory->of_rank.size(), static_cast<size_t>(ranks.size()));
      std::byte* mine = memory->of_rank[static_cast<size_t>(ranks.rank())];
      ASSERT_EQ(reinterpret_cast<uintptr_t>(mine) % 64, 0u);
      for (int64_t i = 0; i < bytes; ++i) ASSERT_EQ(mine[i], std::byte{0});
      std::fill_n(mine, bytes, static_cast<std::byte>(ranks.rank() + 1));
      ranks.barrier();
      for (int peer = 0; peer < ranks.size(); ++peer)
        ASSERT_EQ(memory->of_rank[static_cast<size_t>(peer)][bytes - 1], static_cast<std::byte>(peer + 1));
      ranks.barrier();
    }
  });
}

TEST(Communicator, DifferentCollectivesAreAnErrorThatNamesBoth) {
  const std::string failure = failure_of(3, [](Communicator& ranks) {
    int value = 0;
    if (ranks.rank() == 1)
      ranks.broadcast(&value, 4, 0);
    else
      ranks.barrier();
  });
  EXPECT_NE(failure.find("called barrier"), std::string::npos) << failure;
  EXPECT_NE(failure.find("called broadcast of 4 bytes from rank 0"), std::string::npos) << failure;
}

TEST(Communicator, DifferentSizesAndRootsAreErrors) {
  EXPECT_NE(failure_of(2,
                       [](Communicator& ranks) {
                         std::vector<char> mine(8), all(16);
                         ranks.all_gather(mine.data(), ranks.rank() == 0 ? 8 : 4, all.data());
                       }),
            "");
  EXPECT_NE(failure_of(2,
                       [](Communicator& ranks) {
                         int value = 0;
                         ranks.broadcast(&value, 4, ranks.rank());
                       }),
            "");
}

/// A rank whose copies can fail.
class Failing : public LocalCommunicator {
 public:
  using LocalCommunicator::LocalCommunicator, LocalCommunicator::together;
};

TEST(Communicator, ACopyThatFailsEndsAllRanksOnceAllHaveCopied) {
  constexpr int count = 3;
  const auto group = LocalCommunicator::make_group(count);
  std::atomic<bool> is_slow_done{false};
  std::atomic<int> failed{0};
  const std::string failure = failure_of(count, [&](Communicator& launched) {
    Failing ranks(group, launched.rank());
    std::vector<int> mine(1000, launched.rank());
    try {
      ranks.together("copies", mine.data(), {}, [&] {
        if (launched.rank() == 1) throw std::length_error("no room");
        if (launched.rank() != 2) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        is_slow_done = true;
      });
    } catch (const std::length_error&) {
      EXPECT_TRUE(is_slow_done.load()) << "rank " << launched.rank() << " may free what another still reads";
      ++failed;
      throw;
    }
  });
  EXPECT_EQ(failure, "no room");
  EXPECT_EQ(failed.load(), count);
}

TEST(Communicator, AMessageThatWasNotSentIsAnErrorThatNamesTheSender) {
  const std::string failure = failure_of(2, [](Communicator& ranks) {
    std::vector<std::byte> buffer(16);
    const ReceivedMessage message{1 - ranks.rank(), buffer.data(), 16};
    if (ranks.rank() == 0)
      ranks.exchange({}, {&message, 1});
    else
      ranks.exchange({}, {});
  });
  EXPECT_NE(failure.find("rank 1 sent no message of 16 bytes to rank 0"), std::string::npos) << failure;
}

TEST(Communicator, ADeadlineNamesTheCollectiveAndTheMissingRank) {
  std::atomic<bool> given_up{false};
  const std::string failure = failure_of(3, [&](Communicator& ranks) {
    ranks.barrier();
    // The timeout is long enough for the rank that arrives, even on a loaded machine.
    ranks.set_timeout(2.0);
    if (ranks.rank() == 1) {
      while (!given_up.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    int value = 0;
    try {
      ranks.broadcast(&value, 4, 0);
    } catch (...) {
      given_up = true;
      throw;
    }
  });
  EXPECT_NE(failure.find("broadcast of 4 bytes, collective 2"), std::string::npos) << failure;
  EXPECT_NE(failure.find("waited 2 s"), std::string::npos) << failure;
  EXPECT_NE(failure.find("rank 1 did not arrive"), std::string::npos) << failure;
}

TEST(Communicator, WhoComesTooLateDoesNotMeetARankThatHasGone) {
  std::atomic<bool> given_up{false};
  std::atomic<bool> met{false};
  const std::string failure = failure_of(2, [&](Communicator& ranks) {
    ranks.set_timeout(0.2);
    if (ranks.rank() == 0) {
      try {
        ranks.barrier();
      } catch (...) {
        given_up = true;
        throw;
      }
    } else {
      while (!given_up.load()) std::this_thread::yield();
      ranks.barrier();
      met = true;
    }
  });
  EXPECT_NE(failure, "");
  EXPECT_FALSE(met.load());
}

TEST(Communicator, ARankThatThrowsReleasesTheOthersAndIsTheOneReported) {
  for (bool through_shared_memory : {false, true}) {
    std::atomic<int> released{0};
    const std::string failure = failure_of(4, [&](Communicator& ranks) {
      ranks.set_timeout(1e6);
      SharedBarrier barrier(ranks.share(64), ranks.rank());
      expect(ranks.rank() != 2, "rank 2 has had enough");
      try {
        if (through_shared_memory)
          barrier.wait(ranks.timeout(), ranks.cancelled());
        else
          ranks.barrier();
      } catch (...) {
        ++released;
        throw;
      }
    });
    EXPECT_EQ(failure, "rank 2 has had enough");
    EXPECT_EQ(released.load(), 3);
  }
}

TEST(Communicator, CancelEndsARunningWaitAndEveryLaterOne) {
  const std::string failure = failure_of(2, [](Communicator& ranks) {
    ranks.set_timeout(1e6);
    if (ranks.rank() == 1) {
      while (!ranks.cancelled().load()) std::this_thread::yield();
      return;
    }
    std::thread other([&] { ranks.cancel(); });
    EXPECT_THROW(ranks.barrier(), Error);
    other.join();
    ranks.barrier();
  });
  EXPECT_NE(failure.find("this rank is going down"), std::string::npos) << failure;
}

TEST(Communicator, ARankThatBeginsAfterAnotherFailedIsReleased) {
  const std::string failure = failure_of(2, [](Communicator& ranks) {
    if (ranks.rank() == 0) throw Error("failed at once");
    // This rank learns of the failure, even if it begins after the failure.
    while (!ranks.cancelled().load()) std::this_thread::yield();
  });
  EXPECT_NE(failure.find("failed at once"), std::string::npos) << failure;
}

TEST(Communicator, AloneNothingWaitsAndNothingIsRecorded) {
  const auto alone = LocalCommunicator::alone();
  EXPECT_EQ(alone->size(), 1);
  alone->barrier();
  EXPECT_EQ(alone->all_gather_text("me"), std::vector<std::string>{"me"});
  EXPECT_EQ(alone->recorder().sequence(), 0u);
}

}  // namespace
}  // namespace lockstep
