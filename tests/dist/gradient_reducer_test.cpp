// SPDX-License-Identifier: Apache-2.0
// Tests that data_parallel_test.cpp does not cover: buckets, errors of the reducer itself, and native
// reduction. They also check the mean that owners keep of sharded gradients.
#include "lockstep/dist/gradient_reducer.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

#include "lockstep/comm/local_communicator.h"
#include "lockstep/core/error.h"
#include "lockstep/tensor/create.h"
#include "tests/dist/reference_tree.h"

namespace lockstep::gradient_reducer_test {
namespace {

constexpr int64_t block = ParameterLayout::block;

/// Units of 3, 1 and 5 blocks. The last one has two parameters.
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
    const BucketPlan plan(space.layout, Sharding(space, Shard::optimizer, 2, 0), bucket_bytes);
    EXPECT_TRUE(plan.units.empty());
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
  const ParameterSpace large({{"weight", zeros({2000 * block}).set_requires_grad()}});
  const BucketPlan mibs(large.layout, Sharding(large, Shard::none, 1, 0), int64_t{4} << 20);
  EXPECT_EQ(mibs.buckets[0].range, (Range{0, BucketPlan::reserved + 64 * block})) << "1 MiB";
  EXPECT_EQ(mibs.buckets[1].range.size(), 256 * block) << "4 MiB";
}

TEST(BucketPlan, WhereGradientsAreCutNoBucketMeetsTwoUnits) {
  const ParameterSpace space = small_space();
  const Sharding sharding(space, Shard::gradients, 2, 0);
  for (const int64_t bucket_bytes : {int64_t{0}, 2 * block * 4, int64_t{25} << 20}) {
    const BucketPlan plan(space.layout, sharding, bucket_bytes);
    EXPECT_EQ(plan.units, (std::vector<Range>{{0, BucketPlan::reserved},
                                              BucketPlan::in_buffer({0, 3 * block}),
                                              BucketPlan::in_buffer({3 * block, 4 * block}),
                                              BucketPlan::in_buffer({4 * block, 9 * block})}));
    int64_t end = 0;
    for (const BucketPlan::Bucket& bucket : plan.buckets) {
      EXPECT_EQ(bucket.range.begin, end);
      end = bucket.range.end;
      const Range unit = plan.units.at(static_cast<size_t>(bucket.unit));
      EXPECT_EQ(intersection(unit, bucket.range), bucket.range);
    }
    EXPECT_EQ(end, plan.elements);
    // One bucket holds the reserved elements. The units of 3, 1 and 5 blocks need the rest.
    EXPECT_EQ(plan.buckets.size(), 1u + (bucket_bytes == 0               ? 9u
                                         : bucket_bytes == 2 * block * 4 ? 2u + 1u + 3u
                                                                         : 3u));
  }
  EXPECT_TRUE(BucketPlan(space.layout, Sharding(space, Shard::full, 1, 0), 0).units.empty())
      << "one rank must not shard";
}

TEST(BucketPlan, OwnersDoNotDependOnBuckets) {
  const ParameterSpace space = small_space();
  for (const auto& [stage, ranks] : {std::pair(Shard::none, 1),
                                     {Shard::none, 2},
                                     {Shard::optimizer, 3},
                                     {Shard::gradients, 2},
                                     {Shard::gradients, 3},
                                     {Shard::full, 3}})
    for (const int64_t bucket_bytes : {int64_t{0}, 2 * block * 4, int64_t{1} << 30}) {
      const BucketPlan plan(space.layout, Sharding(space, stage, ranks, 0), bucket_bytes);
      const Ownership owners = space.layout.owned_ranges(ranks);
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
        for (const Range& range : owners[static_cast<size_t>(rank)]) {
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
  const BucketPlan plan(space.layout, Sharding(space, Shard::none, 1, 0), 0);
  EXPECT_EQ(plan.buckets_of({0, 3 * block}), (std::pair{0, 3}));
  EXPECT_EQ(plan.buckets_of({3 * block, 3 * block + 7}), (std::pair{3, 4}));
  EXPECT_EQ(plan.buckets_of({4 * block + 100, 8 * block + 1}), (std::pair{4, 9}));
  EXPECT_EQ(plan.buckets_of({5, 5}), (std::pair{0, 0})) << "an empty range is in no bucket";
}

TEST(GradientReducer, OneReplicaOnOneRankIsLeftAlone) {
  const ParameterSpace space = small_space();
  GradientReducer reducer(LocalCommunicator::alone(), space.layout, Sharding(space, Shard::none, 1, 0),
                          {.bucket_bytes = 0});
  const auto signalling = std::bit_cast<float>(0x7f800001u);  // arithmetic would change it to a quiet NaN
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
    GradientReducer reducer(ranks.shared_from_this(), space.layout, Sharding(space, Shard::none, 3, 0),
                            {.replicas = 7, .reduction = Reduction::native, .bucket_bytes = 2 * block * 4});
    const std::vector<MicroBatch> mine = reducer.plan().micro_batches();
    for (size_t k = 0; k < mine.size(); ++k) {
      float* leaf = reducer.slot(reducer.begin(static_cast<int>(k)));
      for (int64_t i = 0; i < reducer.buckets().elements; ++i) leaf[i] = gradient(mine[k].replica, i);
      for (int b = 0; b < 5; ++b) reducer.complete(b, static_cast<int>(k));
    }
    reducer.finish(true);
    for (int64_t i = 0; i < reducer.buckets().elements; ++i) {
      double sum = 0, magnitude = 0;
      for (int v = 0; v < 7; ++v) {
        sum += gradient(v, i);
        magnitude += std::abs(gradient(v, i));
      }
      // Six additions and one product round. Each error is at most half an ulp of the sum of magnitudes.
      ASSERT_NEAR(reducer.slot(0)[i], sum / 7, 8 * 0x1p-24 * magnitude / 7 + 1e-30);
    }
  });
}

/// Returns a plan with buckets that end at those elements. Every rank owns a range of each bucket.
BucketPlan plan_of(const std::vector<int64_t>& ends, int ranks) {
  BucketPlan plan;
  plan.elements = ends.back();
  plan.owned.resize(static_cast<size_t>(ranks));
  int64_t begin = 0;
  for (const int64_t end : ends) {
    BucketPlan::Bucket& bucket =
        plan.buckets.emplace_back(BucketPlan::Bucket{.range = {begin, end}, .owned = {}});
    const auto part = [&](int64_t number) { return begin + (end - begin) * number / ranks; };
    for (int rank = 0; rank < ranks; ++rank) {
      const Range mine{part(rank), part(rank + 1)};
      bucket.owned.push_back({mine});
      plan.owned[static_cast<size_t>(rank)].push_back(mine);
    }
    begin = end;
  }
  return plan;
}

/// Every rank folds the whole of a bucket of a few KiB. Each rank has two mailboxes for such buckets and
/// fills them in turn. Ranks read larger buckets in place.
TEST(GradientReducer, BucketsOfEverySizeHoldTheMeanStepAfterStep) {
  const std::vector<std::vector<int64_t>> cuts{{16}, {4112}, {20000}, {80, 1088, 20000, 20016, 20100}};
  for (const auto& [ranks, replicas] : {std::pair{2, 2}, {2, 5}, {3, 3}, {4, 7}})
    for (const std::vector<int64_t>& ends : cuts)
      for (const bool overlap : {false, true})
        run_ranks(ranks, [&, ranks = ranks, replicas = replicas](Communicator& launched) {
          GradientReducer reducer(launched.shared_from_this(), plan_of(ends, ranks),
                                  {.replicas = replicas, .overlap = overlap}, cpu_stream());
          const std::vector<MicroBatch> mine = reducer.plan().micro_batches();
          for (int step = 0; step < 6; ++step) {
            for (size_t k = 0; k < mine.size(); ++k) {
              float* const leaf = reducer.slot(reducer.begin(static_cast<int>(k)));
              for (int64_t i = 0; i < ends.back(); ++i) leaf[i] = gradient(step + mine[k].replica, i);
              for (size_t b = 0; b < ends.size(); ++b)
                reducer.complete(static_cast<int>(b), static_cast<int>(k));
            }
            const bool everything = step != 3;
            reducer.finish(everything);
            if (!everything) reducer.gather_slot();
            for (int64_t i = 0; i < ends.back(); ++i) {
              std::vector<float> leaves;
              for (int v = 0; v < replicas; ++v) leaves.push_back(gradient(step + v, i));
              ASSERT_EQ(reducer.slot(0)[i],
                        reference_tree_sum(leaves) * (1.0f / static_cast<float>(replicas)))
                  << "element " << i << " of " << ends.back() << ", step " << step << ", " << ranks
                  << " ranks";
            }
          }
        });
}

TEST(GradientReducer, WhereGradientsAreCutOwnersKeepTheMean) {
  constexpr int replicas = 5, accumulate = 2;
  for (const bool shared_memory : {false, true})
    for (const bool overlap : {false, true})
      run_ranks(3, [&](Communicator& ranks) {
        const ParameterSpace space = small_space();
        const Sharding sharding(space, Shard::gradients, 3, 0);
        GradientReducer reducer(ranks.shared_from_this(), space.layout, sharding,
                                {.replicas = replicas,
                                 .accumulate = accumulate,
                                 .shard = Shard::gradients,
                                 .bucket_bytes = 2 * block * 4,
                                 .overlap = overlap,
                                 .shared_memory = shared_memory});
        ASSERT_TRUE(reducer.cuts_gradients());
        const std::vector<Range>& units = reducer.buckets().units;
        const std::vector<MicroBatch> mine = reducer.plan().micro_batches();
        for (int step = 0; step < 2; ++step) {
          for (size_t k = 0; k < mine.size(); ++k) {
            reducer.begin(static_cast<int>(k));
            for (size_t b = 0; b < reducer.buckets().buckets.size(); ++b) {
              const auto& [range, unit, owned] = reducer.buckets().buckets[b];
              const int64_t first = units[static_cast<size_t>(unit)].begin;
              float* const leaf = reducer.leaf(unit).data<float>();
              for (int64_t i = range.begin; i < range.end; ++i)  // an empty micro-batch must not count
                leaf[i - first] =
                    mine[k].is_empty ? NAN : gradient(step + accumulate * mine[k].replica + mine[k].index, i);
              reducer.complete(static_cast<int>(b), static_cast<int>(k));
            }
          }
          reducer.finish(false);
          std::vector<float> expected;
          for (const Range& range : reducer.buckets().owned[static_cast<size_t>(ranks.rank())])
            for (int64_t i = range.begin; i < range.end; ++i) {
              std::vector<float> leaves;
              for (int v = 0; v < replicas; ++v)
                leaves.push_back(gradient(step + accumulate * v, i) + gradient(step + accumulate * v + 1, i));
              expected.push_back(reference_tree_sum(leaves) * (1.0f / replicas));
            }
          if (ranks.rank() == 0) {
            const float* const reserved = reducer.reserved_mean().data<float>();
            EXPECT_TRUE(std::equal(reserved, reserved + BucketPlan::reserved, expected.begin()));
            expected.erase(expected.begin(), expected.begin() + BucketPlan::reserved);
          }
          const Tensor shard = reducer.shard();
          ASSERT_EQ(shard.size(), static_cast<int64_t>(expected.size()));
          EXPECT_EQ(std::memcmp(shard.data<float>(), expected.data(), 4 * expected.size()), 0)
              << "rank " << ranks.rank() << ", step " << step;
        }
      });
}

TEST(GradientReducer, AnUnfinishedBucketIsAnErrorAlsoWhereAThreadWaitsForIt) {
  for (const int ranks : {1, 2})
    for (const Shard stage : {Shard::none, Shard::gradients})
      run_ranks(ranks, [&](Communicator& launched) {
        const ParameterSpace space = small_space();
        const Sharding sharding(space, stage, launched.size(), 0);
        GradientReducer reducer(launched.shared_from_this(), space.layout, sharding,
                                {.shard = stage, .bucket_bytes = 0, .overlap = true});
        reducer.begin(0);
        if (reducer.cuts_gradients()) reducer.leaf(0);
        reducer.complete(0, 0);
        EXPECT_THROW(reducer.finish(false), Error);
      });
}

}  // namespace
}  // namespace lockstep::gradient_reducer_test
