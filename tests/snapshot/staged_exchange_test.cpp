// SPDX-License-Identifier: Apache-2.0
// A rank's share of a snapshot for a bucket is in memory once: what it sends to others goes in rounds.
#include <gtest/gtest.h>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/core/memory.h"
#include "lockstep/snapshot/snapshot_files.h"
#include "tests/support/held_tensors.h"

namespace lockstep {
namespace {

/// Records the bytes that this rank sends in each exchange.
class Recording final : public LocalCommunicator {
 public:
  using LocalCommunicator::LocalCommunicator;
  std::vector<int64_t> sent;

 protected:
  void do_exchange(std::span<const SentMessage> sends, std::span<const ReceivedMessage> receives) override {
    sent.push_back(bytes_of(sends));
    LocalCommunicator::do_exchange(sends, receives);
  }
};

int64_t peak_of(const std::string& label) {
  for (const MemoryUse& use : memory_table())
    if (use.label == label) return use.peak_bytes;
  return 0;
}

struct Case {
  int ranks;
  HeldTensors::Placement values;
  bool first_writes_all;
};

TEST(StagedExchange, TakesAConstantBesidesTheShareAndBringsEveryElement) {
  for (const Case& one : {Case{2, HeldTensors::owned_ranges, false}, Case{3, HeldTensors::everything, false},
                          Case{3, HeldTensors::groups, false}, Case{3, HeldTensors::owned_ranges, true}}) {
    const int ranks = one.ranks;
    const auto group = LocalCommunicator::make_group(ranks);
    run_ranks(ranks, [&](Communicator& launched) {
      const auto recording = std::make_shared<Recording>(group, launched.rank());
      const World world(recording);
      // The reversed order of sizes gives each rank pieces of every other rank.
      HeldTensors tensors({{"bias", {7}}, {"tall", {1900, 1700}}, {"wide", {700, 2900}}},
                          {"exp_avg", "exp_avg_sq"}, ranks, one.values, HeldTensors::owned_ranges);
      tensors.count(world.rank(), 1.0);
      const std::vector<SnapshotFile> planned = files_of(tensors);
      const Deal deal = one.first_writes_all
                            ? deal_to_first(planned, ranks)
                            : deal_parts(planned, ranks, [](int64_t) { return int64_t{5} << 20; });
      const RankShare& share = deal[static_cast<size_t>(world.rank())];
      std::vector<std::byte> memory(static_cast<size_t>(bytes_of(planned, share)));
      collect(world, tensors, planned, deal, memory.data());
      const auto* next = reinterpret_cast<const float*>(memory.data());
      for (const RankShare::Piece& piece : share.pieces)
        for (int64_t i = piece.elements.begin; i < piece.elements.end; ++i)
          ASSERT_EQ(*next++, HeldTensors::number(1.0, planned[piece.file].buffers[piece.tensor], i));

      for (const int64_t bytes : recording->sent) EXPECT_LE(bytes, most_staged_bytes);
      EXPECT_GT(recording->sent.size(), 1u) << "one round would have done";
    });
    EXPECT_LE(peak_of("snapshot staging"), ranks * most_staged_bytes);
    EXPECT_GT(peak_of("snapshot staging"), 0);
  }
}

}  // namespace
}  // namespace lockstep
