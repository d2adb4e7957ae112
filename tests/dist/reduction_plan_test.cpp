// SPDX-License-Identifier: Apache-2.0
#include "dist/reduction_plan.h"

#include <cmath>
#include <gtest/gtest.h>

#include "core/error.h"
#include "kernels/fold.h"
#include "tests/dist/reference_tree.h"

namespace lockstep {
namespace {

constexpr Execution executions[] = {Execution::ranges, Execution::interleaved};

/// The definition over texts: "((0+1)+2)" for three leaves.
std::string reference_text(int leaves, int level, int index) {
  if (level == 0) return concat(index);
  const int middle = (2 * index + 1) << (level - 1);
  const std::string left = reference_text(leaves, level - 1, 2 * index);
  if (middle >= leaves) return left;
  return concat("(", left, "+", reference_text(leaves, level - 1, 2 * index + 1), ")");
}

std::string reference_text(int leaves) {
  int level = 0;
  while ((1 << level) < leaves) ++level;
  return reference_text(leaves, level, 0);
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

/// Carries out the plans of all ranks on texts and returns what an owner ends with.
std::string carry_out(const std::vector<ReductionPlan>& plans) {
  using Texts = std::vector<std::string>;
  Texts counter(static_cast<size_t>(plans[0].levels));
  std::string mean;
  for (size_t i = 0; i < plans[0].rounds.size(); ++i) {
    std::vector<Texts> slots;  // [rank][slot]
    for (const ReductionPlan& plan : plans) {
      Texts& mine = slots.emplace_back(static_cast<size_t>(plan.slots), "nothing");
      const auto& replicas = plan.rounds[i].replicas;
      for (size_t k = 0; k < replicas.size(); ++k) {
        mine.at(static_cast<size_t>(replicas[k].slot)) = concat(replicas[k].index);
        if (k + 1 == replicas.size() && !plan.merges_last) continue;
        for (int n = 0; n < replicas[k].additions; ++n) {
          const auto right = static_cast<size_t>(replicas[k].slot - n);
          mine.at(right - 1) = concat("(", mine.at(right - 1), "+", mine.at(right), ")");
        }
      }
    }
    for (const ReductionPlan::Fold& fold : plans[0].rounds[i].folds) {
      Texts inputs(counter.begin(), counter.begin() + plans[0].rounds[i].levels);
      for (size_t rank = 0; rank < plans.size(); ++rank) {
        const int handed_over = plans[0].rounds[i].slots_of_rank[rank];
        inputs.insert(inputs.end(), slots[rank].begin(), slots[rank].begin() + handed_over);
      }
      (fold.level == ReductionPlan::Fold::mean ? mean : counter.at(static_cast<size_t>(fold.level))) =
          run_program(fold, inputs);
    }
  }
  return mean;
}

TEST(ReductionPlan, EveryPlanAddsWhatTheTreeAddsAsTheTreeAddsIt) {
  for (int replicas = 1; replicas <= 12; ++replicas)
    for (int ranks = 1; ranks <= replicas; ++ranks)
      for (const Execution execution : executions)
        for (const bool merges_last : {false, true}) {
          std::vector<ReductionPlan> plans;
          for (int rank = 0; rank < ranks; ++rank)
            plans.emplace_back(replicas, ranks, rank, execution, merges_last);
          EXPECT_EQ(carry_out(plans), reference_text(replicas))
              << ranks << " ranks, " << name(execution) << ", merges last " << merges_last << "\n"
              << plans[0].to_text();
          for (const ReductionPlan& plan : plans) {
            ASSERT_EQ(plan.rounds.size(), plans[0].rounds.size());
            for (size_t i = 0; i < plan.rounds.size(); ++i)
              EXPECT_EQ(plan.rounds[i].slots_of_rank, plans[0].rounds[i].slots_of_rank) << "ranks disagree";
          }
        }
}

TEST(ReductionPlan, EveryReplicaIsRunOnceAndTheLoadDiffersByOneAtMost) {
  for (int replicas = 1; replicas <= 12; ++replicas)
    for (int ranks = 1; ranks <= replicas; ++ranks)
      for (const Execution execution : executions) {
        std::vector<int> runs(static_cast<size_t>(replicas));
        for (int rank = 0; rank < ranks; ++rank) {
          const ReductionPlan plan(replicas, ranks, rank, execution, true);
          const std::vector<int> mine = plan.replicas();
          EXPECT_EQ(mine, replicas_of(replicas, ranks, rank, execution));
          EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
          const auto count = static_cast<int>(mine.size());
          EXPECT_TRUE(count == replicas / ranks || count == replicas / ranks + 1);
          for (const int replica : mine) ++runs.at(static_cast<size_t>(replica));
        }
        EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(replicas), 1));
      }
}

TEST(ReductionPlan, MemoryIsThatOfABinaryCounter) {
  for (const auto& [replicas, slots] : {std::pair(1, 1), {2, 2}, {4, 3}, {8, 4}, {16, 5}})
    EXPECT_EQ(ReductionPlan(replicas, 1, 0, Execution::ranges, false).slots, slots) << replicas;
  // Interleaved, a rank has one slot; the counter lies on what its owners own.
  for (const auto& [replicas, levels] : {std::pair(2, 0), {4, 1}, {8, 2}, {16, 3}}) {
    const ReductionPlan plan(replicas, 2, 0, Execution::interleaved, false);
    EXPECT_EQ(plan.slots, 1);
    EXPECT_EQ(plan.levels, levels) << replicas;
  }
}

TEST(ReductionPlan, FewerReplicasThanRanksAreRefusedByName) {
  try {
    ReductionPlan(2, 3, 0, Execution::ranges, true);
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("dist.replicas = 2"), std::string::npos) << error.what();
  }
}

TEST(ReductionPlan, ReadsAsText) {
  EXPECT_EQ(ReductionPlan(5, 2, 1, Execution::ranges, true).to_text(),
            "rank 1 of 2, 5 replicas, ranges\n"
            "round 0\n"
            "  replica 2 writes slot 0\n"
            "  replica 3 writes slot 1\n"
            "  slot 0 += slot 1\n"
            "  replica 4 writes slot 1\n"
            "  owners: sum = ((slot 0 of rank 0 + slot 0 of rank 1) + slot 1 of rank 1)\n");
  EXPECT_EQ(ReductionPlan(3, 2, 0, Execution::interleaved, false).to_text(),
            "rank 0 of 2, 3 replicas, interleaved\n"
            "round 0\n"
            "  replica 0 writes slot 0\n"
            "  owners: level 0 = (slot 0 of rank 0 + slot 0 of rank 1)\n"
            "round 1\n"
            "  replica 2 writes slot 0\n"
            "  owners: sum = (level 0 + slot 0 of rank 0)\n");
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
}  // namespace lockstep
