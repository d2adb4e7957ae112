// SPDX-License-Identifier: Apache-2.0
// What data_parallel_test.cpp does not reach: buckets, the reducer's own errors, native reduction.
#include "dist/gradient_reducer.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

#include "comm/local_communicator.h"
#include "core/error.h"
#include "tensor/create.h"

namespace lockstep {
namespace {

constexpr int64_t block = ParameterSpace::block;

/// Units of 3, 1 and 5 blocks, the last of two parameters.
ParameterSpace small_space() {
  const auto parameter = [](int64_t size) { return zeros({size}).set_requires_grad(); };
  return ParameterSpace({{"a.0.weight", parameter(4 * block + 5)},
                         {"a.0.bias", parameter(100)},
                         {"b.weight", parameter(7)},
                         {"c.weight", parameter(3 * block)}});
}

TEST(BucketPlan, BucketsAreWholeBlocksWithoutGapsWhateverTheirSize) {
  const ParameterSpace space = small_space();
  for (const int64_t bucket_bytes : {int64_t{0}, int64_t{1}, 2 * block * 4, int64_t{25} << 20}) {
    const BucketPlan plan(space, 2, bucket_bytes);
    EXPECT_EQ(plan.elements, BucketPlan::reserved + 9 * block);
    int64_t end = 0;
    for (const BucketPlan::Bucket& bucket : plan.buckets) {
      EXPECT_EQ(bucket.range.begin, end);
      end = bucket.range.end;
      EXPECT_EQ((end - BucketPlan::reserved) % block, 0);
    }
    EXPECT_EQ(end, plan.elements);
    EXPECT_EQ(plan.buckets.size(), bucket_bytes < 2 * block * 4 ? 9u : bucket_bytes > block * 40 ? 1u : 5u);
  }
  const BucketPlan mibs(2000 * block, {{}}, int64_t{4} << 20);
  EXPECT_EQ(mibs.buckets[0].range, (Range{0, BucketPlan::reserved + 64 * block})) << "1 MiB";
  EXPECT_EQ(mibs.buckets[1].range.size(), 256 * block) << "4 MiB";
}

TEST(BucketPlan, OwnersDoNotDependOnBuckets) {
  const ParameterSpace space = small_space();
  for (const int ranks : {1, 2, 3})
    for (const int64_t bucket_bytes : {int64_t{0}, 2 * block * 4, int64_t{1} << 30}) {
      const BucketPlan plan(space, ranks, bucket_bytes);
      const Ownership segments = space.segments(ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<Range> owned;
        for (const BucketPlan::Bucket& bucket : plan.buckets)
          for (const Range& range : bucket.owned[static_cast<size_t>(rank)])
            if (!owned.empty() && owned.back().end == range.begin)
              owned.back().end = range.end;
            else
              owned.push_back(range);
        std::vector<Range> expected;
        if (rank == 0) expected.push_back({0, BucketPlan::reserved});
        for (const Range& range : segments[static_cast<size_t>(rank)]) {
          const Range in_slot{range.begin + BucketPlan::reserved, range.end + BucketPlan::reserved};
          if (!expected.empty() && expected.back().end == in_slot.begin)
            expected.back().end = in_slot.end;
          else
            expected.push_back(in_slot);
        }
        EXPECT_EQ(owned, expected) << "rank " << rank << " of " << ranks;
      }
    }
}

TEST(BucketPlan, AParameterMayMeetSeveralBuckets) {
  const ParameterSpace space = small_space();
  const BucketPlan plan(space, 1, 0);
  EXPECT_EQ(plan.buckets_of({0, 3 * block}), (std::pair{0, 3}));
  EXPECT_EQ(plan.buckets_of({3 * block, 3 * block + 7}), (std::pair{3, 4}));
  EXPECT_EQ(plan.buckets_of({4 * block + 100, 8 * block + 1}), (std::pair{4, 9}));
  EXPECT_EQ(plan.buckets_of({5, 5}), (std::pair{0, 0})) << "nothing meets nothing";
}

TEST(GradientReducer, OneReplicaOnOneRankIsLeftAlone) {
  const ParameterSpace space = small_space();
  GradientReducer reducer(LocalCommunicator::alone(), BucketPlan(space, 1, 0), {}, cpu_stream());
  const auto signalling = std::bit_cast<float>(0x7f800001u);  // any arithmetic would make it quiet
  for (int64_t i = 0; i < reducer.buckets().elements; ++i)
    std::memcpy(reducer.slot(0) + i, &signalling, sizeof(float));
  reducer.begin(0);
  for (int b = 0; b < 9; ++b) reducer.complete(b, 0);
  reducer.finish(true);
  for (int64_t i = 0; i < reducer.buckets().elements; ++i)
    ASSERT_EQ(std::memcmp(reducer.slot(0) + i, &signalling, sizeof(float)), 0) << i;
}

float gradient(int replica, int64_t i) {
  const double angle = 0.37 * static_cast<double>(i) + 1.7 * replica;
  return static_cast<float>(std::ldexp(std::sin(angle), static_cast<int>((i * 5 + replica * 11) % 29) - 14));
}

TEST(GradientReducer, NativeReductionIsNearTheMean) {
  run_ranks(3, [&](Communicator& ranks) {
    const ParameterSpace space = small_space();
    GradientReducer reducer(ranks.shared_from_this(), BucketPlan(space, 3, 2 * block * 4),
                            {.replicas = 7, .reduction = Reduction::native}, cpu_stream());
    const std::vector<int> replicas = reducer.plan().replicas();
    for (size_t k = 0; k < replicas.size(); ++k) {
      float* leaf = reducer.slot(reducer.begin(static_cast<int>(k)));
      for (int64_t i = 0; i < reducer.buckets().elements; ++i) leaf[i] = gradient(replicas[k], i);
      for (int b = 0; b < 5; ++b) reducer.complete(b, static_cast<int>(k));
    }
    reducer.finish(true);
    for (int64_t i = 0; i < reducer.buckets().elements; ++i) {
      double sum = 0, magnitude = 0;
      for (int v = 0; v < 7; ++v) {
        sum += gradient(v, i);
        magnitude += std::abs(gradient(v, i));
      }
      // Six additions and one product, each rounding by half an ulp of at most the sum of magnitudes.
      ASSERT_NEAR(reducer.slot(0)[i], sum / 7, 8 * 0x1p-24 * magnitude / 7 + 1e-30);
    }
  });
}

TEST(GradientReducer, AnUnfinishedBucketIsAnErrorAlsoWhereAThreadWaitsForIt) {
  for (const int ranks : {1, 2})
    run_ranks(ranks, [](Communicator& launched) {
      const ParameterSpace space = small_space();
      GradientReducer reducer(launched.shared_from_this(), BucketPlan(space, launched.size(), 0),
                              {.overlap = true}, cpu_stream());
      reducer.begin(0);
      reducer.complete(0, 0);
      EXPECT_THROW(reducer.finish(true), Error);
    });
}

}  // namespace
}  // namespace lockstep
