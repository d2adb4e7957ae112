// SPDX-License-Identifier: Apache-2.0
#include "lockstep/movement/reduction_plan.h"

#include <cmath>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "lockstep/kernels/fold.h"
#include "tests/dist/reference_tree.h"

namespace lockstep::reduction_plan_test {
namespace {

/// A way to divide the work of a step.
struct Cut {
  Execution execution;
  int accumulate;  ///< micro-batches that the plan adds; with ranges 1, because a backward adds to its slot
};

constexpr Cut cuts[] = {{Execution::ranges, 1},
                        {Execution::interleaved, 1},
                        {Execution::interleaved, 2},
                        {Execution::interleaved, 3}};

/// Returns the gradient of a replica as text: "(2.0+2.1)" for two micro-batches, added from left to right.
std::string leaf_text(int replica, int accumulate) {
  std::string text = accumulate == 1 ? concat(replica) : concat(replica, ".0");
  for (int part = 1; part < accumulate; ++part) text = concat("(", text, "+", replica, ".", part, ")");
  return text;
}

/// Returns the tree's definition as text: "((0+1)+2)" for three leaves.
std::string reference_text(int leaves, int accumulate, int level, int index) {
  if (level == 0) return leaf_text(index, accumulate);
  const int middle = (2 * index + 1) << (level - 1);
  const std::string left = reference_text(leaves, accumulate, level - 1, 2 * index);
  if (middle >= leaves) return left;
  return concat("(", left, "+", reference_text(leaves, accumulate, level - 1, 2 * index + 1), ")");
}

std::string reference_text(int leaves, int accumulate) {
  int level = 0;
  while ((1 << level) < leaves) ++level;
  return reference_text(leaves, accumulate, level, 0);
}

std::string run_program(const ReductionPlan::Fold& fold, const std::vector<std::string>& inputs) {
  std::vector<std::string> stack;
  for (const int step : fold.program) {
    if (step != Fold::add) {
      stack.push_back(inputs.at(static_cast<size_t>(step)));
      continue;
    }
    const std::string right = stack.back();
    stack.pop_back();
    stack.back() = concat("(", stack.back(), "+", right, ")");
  }
  return stack.size() == 1 ? stack[0] : "not one value";
}

/// Returns the slots of a rank after the backwards of a round and its own additions.
std::vector<std::string> run_backwards(const ReductionPlan& plan, size_t round) {
  std::vector<std::string> slots(static_cast<size_t>(plan.slots), "nothing");
  const auto& replicas = plan.rounds[round].replicas;
  for (size_t k = 0; k < replicas.size(); ++k) {
    std::string& slot = slots.at(static_cast<size_t>(replicas[k].slot));
    slot = concat(replicas[k].index);
    if (plan.execution == Execution::interleaved && plan.accumulate > 1) {
      EXPECT_EQ(replicas.size(), 1u);
      const MicroBatch one = plan.micro_batches().at(round);
      EXPECT_EQ(one.replica, replicas[k].index);
      slot = concat(one.replica, ".", one.index);
    }
    if (k + 1 == replicas.size() && !plan.merges_last) continue;
    for (int n = 0; n < replicas[k].additions; ++n) {
      const auto right = static_cast<size_t>(replicas[k].slot - n);
      slots.at(right - 1) = concat("(", slots.at(right - 1), "+", slots.at(right), ")");
    }
  }
  return slots;
}

/// Executes the plans of all ranks on texts. Returns the result of an owner.
std::string carry_out(const std::vector<ReductionPlan>& plans) {
  using Texts = std::vector<std::string>;
  Texts sums(static_cast<size_t>(plans[0].partial_sums));
  std::string mean;
  for (size_t i = 0; i < plans[0].rounds.size(); ++i) {
    std::vector<Texts> slots;  // [rank][slot]
    for (const ReductionPlan& plan : plans) slots.push_back(run_backwards(plan, i));
    for (const ReductionPlan::Fold& fold : plans[0].rounds[i].folds) {
      Texts inputs(sums.begin(), sums.begin() + plans[0].rounds[i].partial_sums);
      for (size_t rank = 0; rank < plans.size(); ++rank) {
        const int handed_over = plans[0].rounds[i].slots_of_rank[rank];
        inputs.insert(inputs.end(), slots[rank].begin(), slots[rank].begin() + handed_over);
      }
      (fold.partial_sum == ReductionPlan::Fold::mean ? mean
                                                     : sums.at(static_cast<size_t>(fold.partial_sum))) =
          run_program(fold, inputs);
    }
  }
  return mean;
}

const char* name(Execution execution) { return execution == Execution::ranges ? "ranges" : "interleaved"; }

std::string name_of_input(const ReductionPlan::Round& round, int input) {
  if (input < round.partial_sums) return concat("partial sum ", input);
  int rank = 0, slot = input - round.partial_sums;
  for (; slot >= round.slots_of_rank[static_cast<size_t>(rank)]; ++rank)
    slot -= round.slots_of_rank[static_cast<size_t>(rank)];
  return concat("slot ", slot, " of rank ", rank);
}

/// Returns the program as an expression: "((a + b) + c)".
std::string expression(const ReductionPlan::Round& round, const std::vector<int>& program) {
  std::vector<std::string> stack;
  for (const int step : program) {
    if (step != Fold::add) {
      stack.push_back(name_of_input(round, step));
      continue;
    }
    const std::string right = stack.back();
    stack.pop_back();
    stack.back() = concat("(", stack.back(), " + ", right, ")");
  }
  return stack.back();
}

/// Returns a readable text with a line for each replica and each fold.
std::string text_of(const ReductionPlan& plan) {
  std::string text = concat("rank ", plan.rank, " of ", plan.ranks, ", ", plan.total_replicas, " replicas, ",
                            name(plan.execution), "\n");
  for (size_t i = 0; i < plan.rounds.size(); ++i) {
    const ReductionPlan::Round& round = plan.rounds[i];
    text += concat("round ", i, "\n");
    for (size_t k = 0; k < round.replicas.size(); ++k) {
      const ReductionPlan::Replica& replica = round.replicas[k];
      text += concat("  replica ", replica.index, " writes slot ", replica.slot, "\n");
      const bool is_left_to_owners = !plan.merges_last && k + 1 == round.replicas.size();
      for (int n = 0; n < replica.additions && !is_left_to_owners; ++n)
        text += concat("  slot ", replica.slot - n - 1, " += slot ", replica.slot - n, "\n");
    }
    for (const ReductionPlan::Fold& fold : round.folds)
      text += concat(
          "  owners: ",
          fold.partial_sum == ReductionPlan::Fold::mean ? "sum" : concat("partial sum ", fold.partial_sum),
          " = ", expression(round, fold.program), "\n");
  }
  return text;
}

TEST(ReductionPlan, EveryPlanAddsWhatTheTreeAddsAsTheTreeAddsIt) {
  for (int replicas = 1; replicas <= 12; ++replicas)
    for (int ranks = 1; ranks <= replicas; ++ranks)
      for (const auto [execution, accumulate] : cuts)
        for (const bool merges_last : {false, true}) {
          std::vector<ReductionPlan> plans;
          for (int rank = 0; rank < ranks; ++rank)
            plans.emplace_back(replicas, accumulate, ranks, rank, execution, merges_last);
          EXPECT_EQ(carry_out(plans), reference_text(replicas, accumulate))
              << ranks << " ranks, " << name(execution) << ", merges last " << merges_last << "\n"
              << text_of(plans[0]);
          for (const ReductionPlan& plan : plans) {
            ASSERT_EQ(plan.rounds.size(), plans[0].rounds.size());
            for (size_t i = 0; i < plan.rounds.size(); ++i)
              EXPECT_EQ(plan.rounds[i].slots_of_rank, plans[0].rounds[i].slots_of_rank)
                  << "the ranks' plans differ";
          }
        }
}

TEST(ReductionPlan, RangesLeaveMicroBatchesToTheBackward) {
  const ReductionPlan once(7, 1, 3, 1, Execution::ranges, true), thrice(7, 3, 3, 1, Execution::ranges, true);
  EXPECT_EQ(text_of(once), text_of(thrice));
  EXPECT_EQ(thrice.micro_batches().size(), 3 * once.micro_batches().size());
}

TEST(ReductionPlan, EveryMicroBatchIsRunOnceInOrderAndTheLoadDiffersByOneAtMost) {
  for (int replicas = 1; replicas <= 12; ++replicas)
    for (int ranks = 1; ranks <= replicas; ++ranks)
      for (const Execution execution : {Execution::ranges, Execution::interleaved})
        for (const int accumulate : {1, 2, 3}) {
          std::vector<int> runs(static_cast<size_t>(replicas * accumulate));
          for (int rank = 0; rank < ranks; ++rank) {
            const ReductionPlan plan(replicas, accumulate, ranks, rank, execution, true);
            const std::vector<MicroBatch> mine = plan.micro_batches();
            const int unit = execution == Execution::ranges ? accumulate : 1;
            int count = 0, last = -1;
            for (const MicroBatch& one : mine) {
              if (one.is_empty) continue;
              const int index = one.replica * accumulate + one.index;
              EXPECT_GT(index, last);
              last = index;
              ++count;
              ++runs.at(static_cast<size_t>(index));
            }
            const int share = replicas * accumulate / unit / ranks * unit;
            EXPECT_TRUE(count == share || count == share + unit) << count << " of " << share;
          }
          EXPECT_EQ(runs, std::vector<int>(runs.size(), 1));
        }
}

TEST(ReductionPlan, InterleavedRanksRunEquallyManyRoundsOfWhichOnlyTheLastMayBeEmpty) {
  for (int replicas = 1; replicas <= 12; ++replicas)
    for (int ranks = 1; ranks <= replicas; ++ranks)
      for (const int accumulate : {1, 2, 3}) {
        const int all = replicas * accumulate;
        const auto rounds = static_cast<size_t>((all + ranks - 1) / ranks);
        for (int rank = 0; rank < ranks; ++rank) {
          const ReductionPlan plan(replicas, accumulate, ranks, rank, Execution::interleaved, false);
          const std::vector<MicroBatch> mine = plan.micro_batches();
          ASSERT_EQ(mine.size(), rounds);
          EXPECT_EQ(plan.rounds.size(), rounds);
          for (size_t i = 0; i < rounds; ++i) {
            const bool is_beyond = static_cast<int>(i) * ranks + rank >= all;
            EXPECT_EQ(mine[i].is_empty, is_beyond);
            EXPECT_EQ(plan.rounds[i].slots_of_rank[static_cast<size_t>(rank)], is_beyond ? 0 : 1);
            EXPECT_EQ(plan.rounds[i].replicas.size(), 1u) << "an empty micro-batch runs too";
            if (is_beyond) {
              EXPECT_EQ(i + 1, rounds);
              EXPECT_EQ(mine[i].replica, mine[i - 1].replica)
                  << "an empty micro-batch runs on data of this rank";
              EXPECT_EQ(mine[i].index, mine[i - 1].index);
            }
          }
        }
      }
}

TEST(ReductionPlan, MemoryIsThatOfABinaryCounter) {
  for (const auto& [replicas, slots] : {std::pair(1, 1), {2, 2}, {4, 3}, {8, 4}, {16, 5}})
    EXPECT_EQ(ReductionPlan(replicas, 1, 1, 0, Execution::ranges, false).slots, slots) << replicas;
  // If interleaved, a rank has one slot. The owners of the elements keep the partial sums. A round of two
  // ranks has two micro-batches. With accumulate = 2, it ends after each replica instead of each second one.
  // With accumulate = 3, it may end inside a replica, whose sum is kept too.
  for (const auto& [replicas, levels] : {std::pair(2, 0), {4, 1}, {8, 2}, {16, 3}})
    for (const int accumulate : {1, 2, 3}) {
      const ReductionPlan plan(replicas, accumulate, 2, 0, Execution::interleaved, false);
      EXPECT_EQ(plan.slots, 1);
      EXPECT_EQ(plan.partial_sums, levels + accumulate - 1)
          << replicas << " replicas, accumulate " << accumulate;
    }
}

TEST(ReductionPlan, FewerReplicasThanRanksAreRefusedByName) {
  try {
    ReductionPlan(2, 1, 3, 0, Execution::ranges, true);
    FAIL() << "nothing was thrown";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("replicas = 2"), std::string::npos) << error.what();
  }
}

TEST(ReductionPlan, SmallPlansMakeTheseAdditions) {
  EXPECT_EQ(text_of(ReductionPlan(5, 1, 2, 1, Execution::ranges, true)),
            "rank 1 of 2, 5 replicas, ranges\n"
            "round 0\n"
            "  replica 2 writes slot 0\n"
            "  replica 3 writes slot 1\n"
            "  slot 0 += slot 1\n"
            "  replica 4 writes slot 1\n"
            "  owners: sum = ((slot 0 of rank 0 + slot 0 of rank 1) + slot 1 of rank 1)\n");
  EXPECT_EQ(text_of(ReductionPlan(3, 1, 2, 0, Execution::interleaved, false)),
            "rank 0 of 2, 3 replicas, interleaved\n"
            "round 0\n"
            "  replica 0 writes slot 0\n"
            "  owners: partial sum 0 = (slot 0 of rank 0 + slot 0 of rank 1)\n"
            "round 1\n"
            "  replica 2 writes slot 0\n"
            "  owners: sum = (partial sum 0 + slot 0 of rank 0)\n");
  EXPECT_EQ(text_of(ReductionPlan(2, 2, 2, 1, Execution::interleaved, false)),
            "rank 1 of 2, 2 replicas, interleaved\n"
            "round 0\n"
            "  replica 0 writes slot 0\n"
            "  owners: partial sum 0 = (slot 0 of rank 0 + slot 0 of rank 1)\n"
            "round 1\n"
            "  replica 1 writes slot 0\n"
            "  owners: sum = (partial sum 0 + (slot 0 of rank 0 + slot 0 of rank 1))\n");
}

TEST(ReductionPlan, TheTreeIsNotASumFromLeftToRight) {
  std::vector<float> leaves;
  float left_to_right = 0.0f;
  for (int v = 0; v < 12; ++v) {
    leaves.push_back(std::ldexp(std::sin(1.0f + static_cast<float>(v)), (v * 7) % 23 - 11));
    left_to_right += leaves.back();
  }
  EXPECT_NE(reference_tree_sum(leaves), left_to_right) << "these leaves cannot tell the orders apart";
}

}  // namespace
}  // namespace lockstep::reduction_plan_test
