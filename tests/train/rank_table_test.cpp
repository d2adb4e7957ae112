// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/rank_table.h"

#include <gtest/gtest.h>

#include "lockstep/comm/local_communicator.h"

namespace lockstep {
namespace {

using Lines = std::vector<std::string>;

RankDevice on_processor(const std::string& host, const std::string& processor = "Xeon") {
  return {.host = host, .processor = processor, .gpu = {}, .gpu_id = {}};
}

RankDevice on_gpu(const std::string& host, const std::string& gpu, const std::string& id) {
  return {.host = host, .processor = "Xeon", .gpu = gpu, .gpu_id = id};
}

TEST(RankTable, OneRankIsOneLine) {
  EXPECT_EQ(rank_table({on_processor("node1")}), Lines{"rank 0 on node1: Xeon"});
}

TEST(RankTable, RanksAreGroupedByHost) {
  EXPECT_EQ(rank_table({on_processor("node1"), on_processor("node1"), on_processor("node2")}),
            (Lines{"ranks 0-1 on node1: Xeon", "rank 2 on node2: Xeon"}));
  EXPECT_EQ(rank_table({on_processor("a"), on_processor("b"), on_processor("a"), on_processor("a")}),
            (Lines{"ranks 0,2-3 on a: Xeon", "rank 1 on b: Xeon"}))
      << "ranks of a host need not be consecutive";
}

TEST(RankTable, EachRankHasItsGpu) {
  EXPECT_EQ(rank_table({on_gpu("node1", "H200", "GPU-1a"), on_gpu("node1", "H200", "GPU-2b"),
                        on_gpu("node2", "H200", "GPU-3c")}),
            (Lines{"ranks 0-1 on node1: H200 (GPU-1a GPU-2b)", "rank 2 on node2: H200 (GPU-3c)"}));
}

TEST(RankTable, AnotherModelOnAHostIsALineOfItsOwn) {
  EXPECT_EQ(rank_table({on_gpu("node1", "H200", "GPU-1a"), on_gpu("node1", "A100", "GPU-2b")}),
            (Lines{"rank 0 on node1: H200 (GPU-1a)", "rank 1 on node1: A100 (GPU-2b)"}));
}

TEST(RankTable, MixedProcessorsAreNamedWithTheirRanks) {
  EXPECT_EQ(mixed_processors({on_processor("a"), on_processor("b")}), "");
  const std::string text =
      mixed_processors({on_processor("a"), on_processor("b", "EPYC"), on_processor("c", "EPYC")});
  EXPECT_EQ(text.substr(0, text.find('.')), "the processors differ: Xeon (rank 0), EPYC (ranks 1-2)");
}

TEST(RankTable, RankZeroPrintsWhereEachIs) {
  testing::internal::CaptureStderr();
  run_ranks(2, [](Communicator& communicator) { print_rank_table(World(communicator.shared_from_this())); });
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_EQ(printed.find("ranks 0-1 on "), 0U) << printed;
  EXPECT_EQ(printed.find('\n'), printed.size() - 1) << "one line:\n" << printed;
  testing::internal::CaptureStderr();
  print_rank_table(World::alone());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "")
      << "a single rank prints no table: its first line may be its error";
}

}  // namespace
}  // namespace lockstep
