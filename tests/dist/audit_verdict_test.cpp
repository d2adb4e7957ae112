// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dist/audit_verdict.h"

#include <gtest/gtest.h>
#include <map>
#include <set>

namespace lockstep::detail {
namespace {

TEST(AuditPlan, KnowsTheRankOfEveryMicroBatch) {
  for (const Execution execution : {Execution::ranges, Execution::interleaved})
    for (const int ranks : {1, 2, 3, 5})
      for (const int replicas : {5, 7, 8})
        for (const int accumulate : {1, 2, 3})
          for (int rank = 0; rank < ranks; ++rank)
            for (const MicroBatch& one :
                 ReductionPlan(replicas, accumulate, ranks, rank, execution, false).micro_batches())
              if (!one.is_empty) {
                EXPECT_EQ(rank_of(one, replicas, accumulate, ranks, execution), rank)
                    << one.replica << "." << one.index << " on " << ranks;
              }
}

TEST(AuditPlan, VisitsEveryMicroBatchAndLetsEveryPairMeet) {
  const AuditPlan plan{.every = 3, .replicas = 5, .accumulate = 2, .ranks = 4};
  std::set<std::pair<int, int>> pairs;
  for (int64_t begin = 0; begin < 3 * 30; begin += 30) {
    std::set<std::pair<int, int>> visited;
    for (int64_t index = begin; index < begin + 30; ++index) {
      const auto work = plan.of_step(index);
      EXPECT_EQ(work.has_value(), (index + 1) % 3 == 0);
      if (!work) continue;
      EXPECT_EQ(work->owner, rank_of(work->micro_batch, 5, 2, 4, Execution::ranges));
      EXPECT_NE(work->owner, work->auditor);
      visited.insert({work->micro_batch.replica, work->micro_batch.index});
      pairs.insert({work->owner, work->auditor});
    }
    EXPECT_EQ(visited.size(), 10U);
  }
  EXPECT_EQ(pairs.size(), 12U);
}

TEST(AuditPlan, IsEmptyForOneRankAndWithoutTheKey) {
  EXPECT_FALSE((AuditPlan{.every = 1, .replicas = 4, .ranks = 1}.of_step(0).has_value()));
  EXPECT_FALSE((AuditPlan{.every = 0, .replicas = 4, .ranks = 2}.of_step(0).has_value()));
}

AuditedHash computed(uint64_t value) { return {.is_there = true, .value = value}; }

TEST(AuditVerdict, ThreeRanksOutvoteTheOneThatIsWrongTwice) {
  const AuditVerdict verdict = judge({computed(7), computed(9), {}}, {7, 9, 7}, 0, 1);
  EXPECT_EQ(verdict.wrong, std::vector{1});
  EXPECT_TRUE(verdict.is_certain && verdict.is_repeated);
  EXPECT_EQ(verdict.right, 0);
}

TEST(AuditVerdict, OfTwoRanksThatRepeatThemselvesOneIsWrong) {
  const AuditVerdict verdict = judge({computed(7), computed(9)}, {7, 9}, 1, 0);
  EXPECT_EQ(verdict.wrong, (std::vector{0, 1}));
  EXPECT_FALSE(verdict.is_certain);
  EXPECT_EQ(verdict.right, 1);
}

TEST(AuditVerdict, ARankWithTwoResultsIsWrongAlsoOfTwo) {
  for (const uint64_t second : {9U, 8U}) {
    const AuditVerdict verdict = judge({computed(7), computed(9)}, {second, 9}, 0, 1);
    EXPECT_EQ(verdict.wrong, std::vector{0});
    EXPECT_TRUE(verdict.is_certain);
    EXPECT_FALSE(verdict.is_repeated);
    EXPECT_EQ(verdict.right, 1);
  }
}

TEST(AuditVerdict, WithoutAMajorityThePairIsNamed) {
  const AuditVerdict verdict = judge({{}, computed(7), {}, computed(9)}, {9, 7, 7, 9}, 3, 1);
  EXPECT_EQ(verdict.wrong, (std::vector{1, 3}));
  EXPECT_FALSE(verdict.is_certain);
}

TEST(AuditFinding, NamesTheElementAndItsBits) {
  AuditFinding finding{.step = 300,
                       .micro_batch = {.replica = 5, .index = 1},
                       .verdict = {.wrong = {2}, .is_certain = true, .is_repeated = true, .right = 0},
                       .hosts = {"a", "a", "b"},
                       .parameter = "h.3.mlp.c_fc.weight",
                       .shape = {40, 205},
                       .block = {.parameter = 4, .index = 1},
                       .bits = std::vector(3, std::vector<uint32_t>(4096, 0x3c8a1f00U))};
  finding.bits[2][17 * 205 + 204 - 4096 + 4096] = 1;  // behind the block's first difference
  finding.bits[2][0] = 0x3c8a1f02U;
  EXPECT_EQ(finding.message(),
            "step 300: rank 2 on host b computed wrong gradients: replica 5, micro-batch 1, parameter "
            "h.3.mlp.c_fc.weight, element [19, 201]: 0x3c8a1f02 on rank 2, 0x3c8a1f00 on rank 0. The fault "
            "repeated when they were computed again. The step was not applied. Take host b out of service: "
            "its processor or its memory is faulty");
  EXPECT_EQ(finding.facts().at("wrong"), "rank 2 on host b");
  EXPECT_EQ(finding.facts().at("bits"), "0x3c8a1f02 on rank 2, 0x3c8a1f00 on rank 0");
  finding.bits[2] = finding.bits[0];
  finding.verdict.is_repeated = false;
  EXPECT_EQ(finding.message(),
            "step 300: rank 2 on host b computed wrong gradients: replica 5, micro-batch 1, parameter "
            "h.3.mlp.c_fc.weight, among elements [19, 201] to [39, 196]. It computed others when they were "
            "computed again. The step was not applied. Take host b out of service: its processor or its "
            "memory is faulty");
  finding.verdict = {.wrong = {0, 2}, .right = 2};
  EXPECT_EQ(finding.message().substr(0, 60), "step 300: rank 0 on host a or rank 2 on host b computed wron");
  EXPECT_EQ(finding.facts().at("one_is_wrong"), "rank 0 on host a or rank 2 on host b");
}

}  // namespace
}  // namespace lockstep::detail
