// SPDX-License-Identifier: Apache-2.0
// The elements that each rank keeps, and the transfers between ranks. Both are values, so one process can
// check those of all ranks.
#include "lockstep/movement/sharding.h"

#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "lockstep/movement/bucket_plan.h"
#include "lockstep/movement/transfer_plan.h"
#include "lockstep/tensor/create.h"
#include "tests/support/user_error.h"

namespace lockstep::sharding_test {
namespace {

constexpr int64_t block = ParameterLayout::block;
constexpr Shard stages[] = {Shard::none, Shard::optimizer, Shard::gradients, Shard::full};

/// Units of 1, 3, 1 and 7 blocks, then a frozen unit of 2 blocks.
ParameterSpace space_of_units() {
  const auto parameter = [](int64_t size) { return zeros({size}).set_requires_grad(); };
  return ParameterSpace({{"a.0.weight", parameter(6 * block + 5)},
                         {"a.0.bias", parameter(100)},
                         {"b.weight", parameter(7)},
                         {"c.weight", parameter(3 * block)},
                         {"frozen.weight", zeros({block + 1})},
                         {"d.weight", parameter(block - 1)}});
}

struct Case {
  Shard stage;
  int ranks;
  int group;
  DType precision;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const DType precision : {DType::f32, DType::bf16})
    for (int ranks = 1; ranks <= 6; ++ranks)
      for (const Shard stage : stages)
        for (int group = 1; group <= ranks; ++group)
          if (ranks % group == 0 && (group == ranks || stage == Shard::full))
            cases.push_back({stage, ranks, group, precision});
  return cases;
}

std::ostream& operator<<(std::ostream& out, const Case& one) {
  return out << name(one.stage) << " on " << one.ranks << " ranks in groups of " << one.group << ", "
             << name(one.precision);
}

/// Counts for each element the ranks from `first` to `end` that keep it.
std::vector<int> holders(const Ownership& ownership, int first, int end, int64_t elements) {
  std::vector<int> count(static_cast<size_t>(elements));
  for (int rank = first; rank < end; ++rank)
    for (const Range& range : ownership[static_cast<size_t>(rank)])
      for (int64_t i = range.begin; i < range.end; ++i) ++count.at(static_cast<size_t>(i));
  return count;
}

bool lies_within(const std::vector<Range>& inner, const std::vector<Range>& outer) {
  const Placement place(outer);
  return std::ranges::all_of(inner, [&](const Range& range) {
    return std::ranges::any_of(place.ranges(),
                               [&](const Range& one) { return intersection(range, one) == range; });
  });
}

TEST(Sharding, EachElementIsUpdatedOnceAndReadByOneOfEachGroup) {
  for (const Case& one : all_cases()) {
    ParameterSpace space = space_of_units();
    space.set_precision(one.precision);
    const int64_t elements = space.layout.elements();
    const Sharding sharding(space, one.stage, one.ranks, one.group);
    std::vector<int> once(static_cast<size_t>(elements), 1), trainable = once;
    std::fill(trainable.begin() + space.layout.trainable_elements(), trainable.end(), 0);
    EXPECT_EQ(holders(sharding.updates, 0, one.ranks, elements), trainable) << one;
    const bool cuts_reads = one.stage == Shard::full && one.ranks > 1;
    EXPECT_EQ(sharding.cuts_reads(), cuts_reads) << one;
    for (int first = 0; first < one.ranks; first += cuts_reads ? one.group : 1)
      EXPECT_EQ(holders(sharding.reads, first, first + (cuts_reads ? one.group : 1), elements), once) << one;
    const bool cuts_masters = one.stage != Shard::none && one.ranks > 1 && one.precision != DType::f32;
    if (cuts_masters)
      EXPECT_EQ(holders(sharding.masters, 0, one.ranks, elements), once) << one;
    else
      EXPECT_EQ(sharding.masters, sharding.reads) << one;
  }
}

TEST(Sharding, WhatARankUpdatesLiesWithinWhatItKeeps) {
  for (const Case& one : all_cases()) {
    ParameterSpace space = space_of_units();
    space.set_precision(one.precision);
    const Sharding sharding(space, one.stage, one.ranks, one.group);
    for (size_t rank = 0; rank < sharding.updates.size(); ++rank) {
      EXPECT_TRUE(lies_within(sharding.updates[rank], sharding.masters[rank])) << one << ", rank " << rank;
      EXPECT_TRUE(lies_within(sharding.masters[rank], sharding.reads[rank])) << one << ", rank " << rank;
      for (const Range& range : sharding.updates[rank]) {
        EXPECT_EQ(range.begin % block, 0) << "each block of the norm must have one owner";
        EXPECT_EQ(range.end % block, 0);
      }
    }
  }
}

TEST(Sharding, NoStageCutsMoreThanTheNext) {
  const ParameterSpace space = space_of_units();
  for (const int ranks : {2, 3, 4}) {
    const Sharding none(space, Shard::none, ranks, 0), gradients(space, Shard::gradients, ranks, 0);
    EXPECT_FALSE(none.cuts_gradients());
    EXPECT_FALSE(Sharding(space, Shard::optimizer, ranks, 0).cuts_gradients());
    EXPECT_TRUE(gradients.cuts_gradients());
    EXPECT_FALSE(gradients.cuts_reads());
    const Sharding full(space, Shard::full, ranks, 0);
    EXPECT_TRUE(full.cuts_gradients() && full.cuts_reads());
    EXPECT_EQ(full.group, ranks);
    EXPECT_EQ(full.updates, none.updates) << "one group: the rank that updates an element keeps it";
  }
  EXPECT_EQ(Sharding(space, Shard::full, 1, 0).stage, Shard::none);
}

TEST(Sharding, OffloadingCutsWhatItMovesOnOneRankToo) {
  EXPECT_EQ(detail::stage_with(Shard::none, Offload::none), Shard::none);
  EXPECT_EQ(detail::stage_with(Shard::none, Offload::optimizer), Shard::optimizer);
  EXPECT_EQ(detail::stage_with(Shard::gradients, Offload::optimizer), Shard::gradients);
  for (const Shard stage : stages) EXPECT_EQ(detail::stage_with(stage, Offload::all), Shard::full);
  ParameterSpace space = space_of_units();
  EXPECT_EQ(Sharding(space, Shard::none, 1, 0, Offload::all).stage, Shard::full);
  EXPECT_EQ(Sharding(space, Shard::full, 1, 0, Offload::optimizer).stage, Shard::optimizer);
  space.copies.keep();  // in fp32, on the GPU, so values may be sharded
  const Sharding sharding(space, Shard::none, 2, 0, Offload::optimizer);
  EXPECT_EQ(sharding.masters, space.layout.owned_ranges(2, true));
  for (const auto& reads : sharding.reads) EXPECT_EQ(size_of(reads), space.layout.elements());
}

TEST(Sharding, GroupsThatCannotBeAreRefused) {
  const auto refusal = [](Shard stage, int ranks, int group) {
    return user_error([&] { detail::check_group(stage, ranks, group); });
  };
  expect_contains(refusal(Shard::full, 4, 3), {"group = 3 does not divide the 4 ranks"});
  expect_contains(refusal(Shard::full, 4, -1), {"group = -1"});
  expect_contains(refusal(Shard::full, 2, 4), {"group = 4"});
  expect_contains(refusal(Shard::gradients, 4, 2),
                  {"group = 2", "shard = gradients every rank keeps all values"});
  expect_contains(user_error([] { detail::check_group(Shard::full, 4, 2, Offload::all); }),
                  {"group = 2", "offload = all"});
  for (const int group : {0, 1, 2, 4}) EXPECT_NO_THROW(detail::check_group(Shard::full, 4, group));
  for (const int group : {0, 4}) EXPECT_NO_THROW(detail::check_group(Shard::full, 4, group, Offload::all));
  EXPECT_NO_THROW(detail::check_group(Shard::none, 4, 4));
  EXPECT_NO_THROW(detail::check_group(Shard::full, 1, 8)) << "the same configuration on one rank";
}

// Each element of a sender's buffer is a number made from its index and the sender's rank. So a test can see
// the source of every element, and elements that must not be written stay `nothing`.
constexpr int64_t nothing = -1;
using Numbers = std::vector<int64_t>;

int64_t number_of(int64_t element, int rank) { return 1000 * element + rank; }

Numbers numbers_of(const Placement& placement, int rank) {
  Numbers numbers;
  for (const Range& range : placement.ranges())
    for (int64_t i = range.begin; i < range.end; ++i) numbers.push_back(number_of(i, rank));
  return numbers;
}

/// Executes the transfers of all ranks. Sources hold the numbers of number_of(). The targets are other
/// buffers, or the sources if `in_place`.
std::vector<Numbers> carry_out(const std::vector<TransferPlan>& transfers, const std::vector<Placement>& from,
                               const std::vector<Placement>& to, bool in_place) {
  std::vector<Numbers> sources, targets;
  for (size_t rank = 0; rank < transfers.size(); ++rank) {
    sources.push_back(numbers_of(from[rank], static_cast<int>(rank)));
    targets.push_back(in_place ? sources.back() : Numbers(static_cast<size_t>(to[rank].elements()), nothing));
  }
  const auto take = [&](size_t sender, size_t receiver, const TransferPlan::Copy& piece) {
    for (int64_t i = 0; i < piece.count; ++i)
      targets[receiver].at(static_cast<size_t>(piece.to + i)) =
          sources[sender].at(static_cast<size_t>(piece.from + i));
  };
  for (size_t rank = 0; rank < transfers.size(); ++rank) {
    for (const TransferPlan::Copy& piece : transfers[rank].stays) take(rank, rank, piece);
    for (size_t peer = 0; peer < transfers.size(); ++peer) {
      // The i-th message that is sent matches the i-th that is expected.
      std::vector<TransferPlan::Copy> sent, expected;
      for (const TransferPlan::Copy& piece : transfers[peer].sends)
        if (piece.peer == static_cast<int>(rank)) sent.push_back(piece);
      for (const TransferPlan::Copy& piece : transfers[rank].receives)
        if (piece.peer == static_cast<int>(peer)) expected.push_back(piece);
      EXPECT_EQ(sent.size(), expected.size()) << "from rank " << peer << " to rank " << rank;
      for (size_t i = 0; i < std::min(sent.size(), expected.size()); ++i) {
        EXPECT_EQ(sent[i].count, expected[i].count);
        EXPECT_EQ(sent[i].from, expected[i].from) << "ranks that read each other's memory need equal places";
        take(peer, rank, expected[i]);
      }
    }
  }
  return targets;
}

TEST(TransferPlan, AnUpdateReachesWhoeverReadsIt) {
  for (const Case& one : all_cases()) {
    ParameterSpace space = space_of_units();
    space.set_precision(one.precision);
    const Sharding sharding(space, one.stage, one.ranks, one.group);
    const std::vector<Placement> places = places_of(sharding.reads);
    std::vector<TransferPlan> transfers;
    for (int rank = 0; rank < one.ranks; ++rank)
      transfers.push_back({sharding.updates, places, sharding.reads, places, rank});
    const std::vector<Numbers> after = carry_out(transfers, places, places, true);
    std::vector<int> owner(static_cast<size_t>(space.layout.elements()), -1);
    for (int rank = 0; rank < one.ranks; ++rank)
      for (const Range& range : sharding.updates[static_cast<size_t>(rank)])
        std::fill(owner.begin() + range.begin, owner.begin() + range.end, rank);
    for (int rank = 0; rank < one.ranks; ++rank) {
      Numbers expected;  // frozen elements are not sent
      for (const Range& range : places[static_cast<size_t>(rank)].ranges())
        for (int64_t i = range.begin; i < range.end; ++i) {
          const int from = owner[static_cast<size_t>(i)];
          expected.push_back(number_of(i, from < 0 ? rank : from));
        }
      EXPECT_EQ(after[static_cast<size_t>(rank)], expected) << one << ", rank " << rank;
    }
  }
}

TEST(TransferPlan, AUnitIsGatheredWithinEachGroup) {
  for (const Case& one : all_cases()) {
    if (one.stage != Shard::full || one.ranks == 1 || one.precision != DType::f32) continue;
    const ParameterSpace space = space_of_units();
    const Sharding sharding(space, one.stage, one.ranks, one.group);
    for (const Range& unit : space.layout.units()) {
      std::vector<TransferPlan> transfers;
      for (int rank = 0; rank < one.ranks; ++rank)
        transfers.push_back(gather_of(sharding.reads, places_of(sharding.reads), unit, one.group, rank));
      const std::vector<Placement> to(static_cast<size_t>(one.ranks), Placement({unit}));
      const std::vector<Numbers> after = carry_out(transfers, places_of(sharding.reads), to, false);
      for (int rank = 0; rank < one.ranks; ++rank) {
        const int first = rank / one.group * one.group;
        Numbers expected(static_cast<size_t>(unit.size()), nothing);
        for (int peer = first; peer < first + one.group; ++peer)
          for (const Range& range : sharding.reads[static_cast<size_t>(peer)])
            for (int64_t i = range.begin; i < range.end; ++i)
              if (unit.begin <= i && i < unit.end)
                expected[static_cast<size_t>(i - unit.begin)] = number_of(i, peer);
        EXPECT_EQ(std::ranges::count(expected, nothing), 0);
        EXPECT_EQ(after[static_cast<size_t>(rank)], expected) << one << ", rank " << rank;
      }
    }
  }
}

TEST(TransferPlan, WhatStaysCanBeSentFromWhereItLies) {
  const ParameterSpace space = space_of_units();
  const Sharding sharding(space, Shard::full, 3, 0);
  for (const Range& unit : space.layout.units())
    for (int rank = 0; rank < 3; ++rank) {
      const TransferPlan gather = gather_of(sharding.reads, places_of(sharding.reads), unit, 3, rank);
      const Placement mine(sharding.reads[static_cast<size_t>(rank)]);
      std::vector<int64_t> from = numbers_of(mine, rank), to(static_cast<size_t>(unit.size()), nothing);
      for (const TransferPlan::Copy& piece : gather.stays)
        std::copy_n(from.begin() + piece.from, piece.count, to.begin() + piece.to);
      const auto bytes_of = [](const std::vector<SentMessage>& messages) {
        std::vector<std::pair<int, std::vector<std::byte>>> all;
        for (const SentMessage& one : messages) all.push_back({one.peer, {one.data, one.data + one.bytes}});
        return all;
      };
      EXPECT_EQ(bytes_of(gather.send_messages_from_there(reinterpret_cast<std::byte*>(to.data()), 8)),
                bytes_of(gather.send_messages(reinterpret_cast<std::byte*>(from.data()), 8)));
    }
}

TEST(TransferPlan, PartsOfOneBufferAreBroughtToAll) {
  const ParameterSpace space = space_of_units();
  const int64_t elements = space.layout.trainable_elements();
  for (int ranks = 1; ranks <= 4; ++ranks) {
    const Ownership owned = space.layout.owned_ranges(ranks);
    std::vector<TransferPlan> transfers;
    for (int rank = 0; rank < ranks; ++rank)
      transfers.push_back(TransferPlan::in_place(owned, elements, rank));
    const std::vector<Placement> whole(static_cast<size_t>(ranks), Placement::whole(elements));
    Numbers gathered(static_cast<size_t>(elements));
    for (int rank = 0; rank < ranks; ++rank)
      for (const Range& range : owned[static_cast<size_t>(rank)])
        for (int64_t i = range.begin; i < range.end; ++i)
          gathered[static_cast<size_t>(i)] = number_of(i, rank);
    for (const Numbers& after : carry_out(transfers, whole, whole, true)) EXPECT_EQ(after, gathered);
  }
}

TEST(TransferPlan, MessagesAreAsLongAsTheirElements) {
  const Ownership owned = {{{0, 10}}, {{10, 30}}};
  const TransferPlan transfer = TransferPlan::in_place(owned, 30, 0);
  std::vector<std::byte> buffer(60);
  const std::vector<SentMessage> sends = transfer.send_messages(buffer.data(), 2);
  const std::vector<ReceivedMessage> receives = transfer.receive_messages(buffer.data(), 2);
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_EQ(sends[0].peer, 1);
  EXPECT_EQ(sends[0].bytes, 20);
  ASSERT_EQ(receives.size(), 1u);
  EXPECT_EQ(receives[0].data, buffer.data() + 20);
  EXPECT_EQ(receives[0].bytes, 40);
}

}  // namespace
}  // namespace lockstep::sharding_test
