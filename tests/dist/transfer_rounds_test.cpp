// SPDX-License-Identifier: Apache-2.0
// Transfers between many ranks. Plans are values, so one process executes and counts those of all ranks.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "lockstep/movement/bucket_plan.h"
#include "lockstep/movement/sharding.h"
#include "lockstep/movement/transfer_plan.h"
#include "lockstep/nn/module.h"

namespace lockstep::transfer_rounds_test {
namespace {

constexpr int64_t block = ParameterLayout::block;

/// Returns declared parameters of these numbers of elements, each a unit of its own.
ParameterSpace space_of(const std::vector<int64_t>& sizes) {
  std::vector<NamedTensor> parameters;
  for (size_t i = 0; i < sizes.size(); ++i) {
    Tensor declared = Tensor::declare({sizes[i]}, DType::f32, cpu_stream(), constant_values(0.0));
    parameters.push_back({concat("unit", i, ".weight"), declared.set_requires_grad()});
  }
  return ParameterSpace(parameters);
}

/// Returns the sizes of units of a GPT of 6.7e9 parameters.
std::vector<int64_t> sizes_of_gpt(int64_t layers = 32, int64_t width = 4096) {
  std::vector<int64_t> sizes(static_cast<size_t>(layers), 12 * width * width + 13 * width);
  sizes.insert(sizes.end(), {50257 * width, 2048 * width, 2 * width});
  return sizes;
}

/// A buffer with one number for each block of elements, for all pieces consist of blocks.
using Blocks = std::vector<int>;

void write(Blocks& blocks, const TransferPlan::Copy& piece, int number) {
  ASSERT_EQ(piece.count % block, 0);
  std::fill_n(blocks.begin() + piece.to / block, piece.count / block, number);
}

/// Executes the rounds of all ranks. At first the buffer of rank r has r + 1 in what it owns.
std::vector<Blocks> carry_out(const std::vector<TransferPlan>& plans, int64_t elements) {
  std::vector<Blocks> buffers(plans.size(), Blocks(static_cast<size_t>(elements / block)));
  for (size_t rank = 0; rank < plans.size(); ++rank)
    for (const TransferPlan::Copy& piece : plans[rank].stays)
      write(buffers[rank], piece, static_cast<int>(rank) + 1);
  for (size_t round = 0; round < plans[0].rounds.size(); ++round) {
    const std::vector<Blocks> before = buffers;
    for (size_t rank = 0; rank < plans.size(); ++rank)
      for (const TransferPlan::Copy& piece : plans[rank].rounds.at(round).receives) {
        const auto sender = static_cast<size_t>(piece.peer);
        const auto is_match = [&](const TransferPlan::Copy& sent) {
          return sent.peer == static_cast<int>(rank) && sent.to == piece.to && sent.count == piece.count;
        };
        EXPECT_EQ(std::ranges::count_if(plans[sender].rounds.at(round).sends, is_match), 1);
        std::copy_n(before[sender].begin() + piece.to / block, piece.count / block,
                    buffers[rank].begin() + piece.to / block);
      }
  }
  return buffers;
}

/// Returns the result of the direct transfer, for comparison.
Blocks direct(const TransferPlan& plan, int64_t elements) {
  Blocks buffer(static_cast<size_t>(elements / block));
  for (const auto* pieces : {&plan.stays, &plan.receives})
    for (const TransferPlan::Copy& piece : *pieces) write(buffer, piece, piece.peer + 1);
  return buffer;
}

TEST(TransferRounds, PassOnWhatADirectTransferSends) {
  const ParameterSpace space = space_of({70 * block, 5, 39 * block, 3 * block, 200 * block});
  for (const int ranks : {33, 36, 64, 65, 100}) {
    const Sharding none(space, Shard::none, ranks, 0), full(space, Shard::full, ranks, 0);
    for (const auto& [sharding, unit] : {std::pair(&none, -1), {&full, 1}, {&full, 4}}) {
      const std::vector<Placement> places = places_of(sharding->reads);
      std::vector<TransferPlan> plans;
      for (int rank = 0; rank < ranks; ++rank)
        plans.push_back(unit < 0 ? TransferPlan(sharding->updates, places, sharding->reads, places, rank)
                                 : gather_of(sharding->reads, places,
                                             space.layout.units()[static_cast<size_t>(unit)], ranks, rank));
      const int64_t elements =
          unit < 0 ? space.layout.elements() : space.layout.units()[static_cast<size_t>(unit)].size();
      ASSERT_EQ(plans[0].rounds.size(), std::ceil(std::log2(ranks)));
      const auto passed_on = carry_out(plans, elements);
      for (int rank = 0; rank < ranks; ++rank) {
        const TransferPlan& plan = plans[static_cast<size_t>(rank)];
        EXPECT_EQ(passed_on[static_cast<size_t>(rank)], direct(plan, elements)) << ranks << " ranks";
        int64_t received = 0, in_rounds = 0;
        for (const TransferPlan::Copy& piece : plan.receives) received += piece.count;
        for (const TransferPlan::Round& round : plan.rounds)
          for (const TransferPlan::Copy& piece : round.receives) in_rounds += piece.count;
        EXPECT_EQ(in_rounds, received) << "no element arrives twice";
      }
    }
  }
}

TEST(TransferRounds, GroupsPassOnAmongRanksThatKeepTheSame) {
  const ParameterSpace space = space_of({300 * block, 90 * block});
  constexpr int ranks = 80, group = 2;
  const Sharding sharding(space, Shard::full, ranks, group);
  const std::vector<Placement> places = places_of(sharding.reads);
  for (int rank = 0; rank < ranks; ++rank) {
    const TransferPlan plan(sharding.updates, places, sharding.reads, places, rank);
    ASSERT_EQ(plan.rounds.size(), 6U) << "40 groups";
    for (const TransferPlan::Round& round : plan.rounds)
      for (const TransferPlan::Copy& piece : round.sends) EXPECT_EQ(piece.peer % group, rank % group);
    EXPECT_TRUE(gather_of(sharding.reads, places, space.layout.units()[0], group, rank).rounds.empty())
        << "few ranks send directly";
  }
}

/// Returns the messages that a rank sends or receives, whichever are more.
int64_t messages_of(const TransferPlan& plan) {
  std::byte memory{};
  size_t sends = 0, receives = 0;
  for (const MessageRound& round : plan.message_rounds(&memory, &memory, 4)) {
    sends += round.sends.size();
    receives += round.receives.size();
  }
  return static_cast<int64_t>(std::max(sends, receives));
}

/// Returns the messages of a rank in a step: those of the norm, of new values, and of the units of one
/// forward and one backward.
int64_t messages_of_step(const ParameterSpace& space, Shard stage, int ranks, int group, int rank) {
  const Sharding sharding(space, stage, ranks, group);
  const Ownership blocks = blocks_by_owner(sharding.updates);
  int64_t messages = messages_of(TransferPlan::in_place(blocks, blocks.back()[0].end, rank));
  const std::vector<Placement> places = places_of(sharding.reads);
  if (!sharding.cuts_reads() || sharding.group < ranks)
    messages += messages_of({sharding.updates, places, sharding.reads, places, rank});
  for (size_t unit = 0; unit < space.layout.units().size() && sharding.cuts_reads(); ++unit)
    messages +=
        2 * messages_of(gather_of(sharding.reads, places, space.layout.units()[unit], sharding.group, rank));
  return messages;
}

TEST(TransferRounds, AStepHasFewMessagesOnManyRanks) {
  const ParameterSpace space = space_of(sizes_of_gpt());
  EXPECT_GT(space.layout.elements(), int64_t{6'600'000'000});
  EXPECT_EQ(space.layout.units().size(), 35U);
  struct Stage {
    Shard shard;
    int group;
  };
  for (const int ranks : {64, 256, 1000})
    for (const auto& [stage, group] : {Stage{Shard::none, 0},
                                       {Shard::optimizer, 0},
                                       {Shard::gradients, 0},
                                       {Shard::full, 0},
                                       {Shard::full, 8}})
      for (const int rank : {0, ranks / 2, ranks - 1}) {
        const int64_t messages = messages_of_step(space, stage, ranks, group, rank);
        RecordProperty(concat(name(stage), group, "_", ranks), concat(messages));
        EXPECT_LE(messages, 4000) << name(stage) << " on " << ranks << " ranks";
        if (stage != Shard::full) {
          EXPECT_LE(messages, 4 * (ranks - 1)) << name(stage) << " on " << ranks << " ranks";
        }
      }
}

}  // namespace
}  // namespace lockstep::transfer_rounds_test
