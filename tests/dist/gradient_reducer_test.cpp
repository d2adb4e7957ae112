// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <mutex>

#include "core/error.h"
#include "dist/host_reducer.h"
#include "dist/local_communicator.h"
#include "tests/dist/reference_tree.h"

namespace lockstep {
namespace {

constexpr int64_t parameter_sizes[] = {700, 1, 33, 5000, 16, 900};

struct Setting {
  int replicas;
  int ranks;
  int64_t bucket_bytes;
  bool overlap;
  bool shared_memory;
};

/// What replica v's backward leaves at element i: a wide range of magnitudes, so that orders of addition
/// show.
float gradient(int replica, int64_t i) {
  const double angle = 0.37 * static_cast<double>(i) + 1.7 * replica;
  return static_cast<float>(std::ldexp(std::sin(angle), static_cast<int>((i * 5 + replica * 11) % 29) - 14));
}

/// One reduction by thread ranks. Every rank's result is checked to be the same; rank 0's is returned.
template <class Value>
std::vector<float> reduce(const Setting& setting, Value value, int steps = 2) {
  const BucketPlan plan(parameter_sizes, setting.bucket_bytes);
  std::vector<std::vector<float>> results(static_cast<size_t>(setting.ranks));
  const auto group = LocalCommunicator::make_group(setting.ranks);
  run_ranks(setting.ranks, [&](Communicator& launched) {
    auto communicator = std::make_shared<LocalCommunicator>(group, launched.rank());
    HostReducer reducer(
        communicator, plan,
        {.replicas = setting.replicas, .overlap = setting.overlap, .shared_memory = setting.shared_memory});
    for (int step = 0; step < steps; ++step) {
      for (int k = 0; k < reducer.replicas().size(); ++k) {
        float* leaf =
            reinterpret_cast<float*>(reducer.storage()->data.get()) + reducer.slot_of(k) * plan.elements;
        for (size_t b = 0; b < plan.buckets.size(); ++b) {
          for (int64_t i = plan.buckets[b].begin; i < plan.buckets[b].end; ++i)
            leaf[i] = value(reducer.replicas().begin + k, i);
          reducer.complete(static_cast<int>(b), k);
        }
      }
      reducer.finish();
    }
    const float* mean = reinterpret_cast<const float*>(reducer.storage()->data.get());
    results[static_cast<size_t>(launched.rank())].assign(mean, mean + plan.elements);
  });
  for (const auto& result : results)
    EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * 4), 0) << "the ranks differ";
  return results[0];
}

class EveryReplicaCount : public testing::TestWithParam<int> {};

TEST_P(EveryReplicaCount, BitsAreTheTreesAtEveryNumberOfRanks) {
  const int replicas = GetParam();
  for (int ranks = 1; ranks <= std::min(replicas, 7); ++ranks)
    for (int64_t bucket_bytes : {int64_t{256}, int64_t{9000}, int64_t{1} << 20})
      for (bool overlap : {false, true})
        for (bool shared_memory : {true, false}) {
          const std::vector<float> mean =
              reduce({replicas, ranks, bucket_bytes, overlap, shared_memory}, gradient);
          for (size_t i = 0; i < mean.size(); ++i) {
            std::vector<float> leaves;
            for (int v = 0; v < replicas; ++v) leaves.push_back(gradient(v, static_cast<int64_t>(i)));
            ASSERT_EQ(mean[i], reference_tree_sum(leaves) * (1.0f / static_cast<float>(replicas)))
                << "element " << i << ", " << ranks << " ranks, buckets of " << bucket_bytes
                << " bytes, overlap " << overlap << ", shared memory " << shared_memory;
          }
        }
}

INSTANTIATE_TEST_SUITE_P(Gate, EveryReplicaCount, testing::Values(1, 3, 7, 8, 12));

TEST(GradientReducer, SumsOfIntegersAreExact) {
  const auto integer = [](int replica, int64_t i) {
    return static_cast<float>((i * 7 + replica * 13) % 1000 - 500);
  };
  for (int ranks : {1, 2, 4}) {
    const std::vector<float> mean = reduce({8, ranks, 4096, false, true}, integer);
    for (size_t i = 0; i < mean.size(); ++i) {
      int64_t sum = 0;
      for (int v = 0; v < 8; ++v) sum += (static_cast<int64_t>(i) * 7 + v * 13) % 1000 - 500;
      ASSERT_EQ(mean[i], static_cast<float>(sum) / 8.0f);
    }
  }
}

TEST(GradientReducer, KeepsAsManyGradientSetsAsTheBinaryCounterNeeds) {
  const BucketPlan plan(parameter_sizes, 4096);
  const std::map<int, int> slots_alone = {{1, 1}, {2, 2}, {4, 3}, {8, 4}, {16, 5}};
  for (const auto& [replicas, slots] : slots_alone) {
    HostReducer reducer(LocalCommunicator::alone(), plan, {.replicas = replicas});
    EXPECT_EQ(reducer.slots(), slots) << replicas << " replicas";
  }
}

TEST(GradientReducer, NativeReductionIsNearTheMean) {
  const BucketPlan plan(parameter_sizes, 4096);
  const auto group = LocalCommunicator::make_group(3);
  run_ranks(3, [&](Communicator& launched) {
    HostReducer reducer(std::make_shared<LocalCommunicator>(group, launched.rank()), plan,
                        {.replicas = 7, .reduction = Reduction::native});
    for (int k = 0; k < reducer.replicas().size(); ++k) {
      float* leaf =
          reinterpret_cast<float*>(reducer.storage()->data.get()) + reducer.slot_of(k) * plan.elements;
      for (int64_t i = 0; i < plan.elements; ++i) leaf[i] = gradient(reducer.replicas().begin + k, i);
      for (size_t b = 0; b < plan.buckets.size(); ++b) reducer.complete(static_cast<int>(b), k);
    }
    reducer.finish();
    const float* mean = reinterpret_cast<const float*>(reducer.storage()->data.get());
    for (int64_t i = 0; i < plan.elements; ++i) {
      double sum = 0, magnitude = 0;
      for (int v = 0; v < 7; ++v) {
        sum += gradient(v, i);
        magnitude += std::abs(gradient(v, i));
      }
      // Six additions and one product, each rounding by half an ulp of at most the sum of magnitudes.
      ASSERT_NEAR(mean[i], sum / 7, 8 * 0x1p-24 * magnitude / 7 + 1e-30);
    }
  });
}

TEST(GradientReducer, AnUnfinishedBucketIsAnError) {
  const BucketPlan plan(parameter_sizes, 256);
  HostReducer reducer(LocalCommunicator::alone(), plan, {.replicas = 1});
  reducer.complete(0, 0);
  EXPECT_THROW(reducer.finish(), Error);
}

TEST(GradientReducer, AnUnfinishedBucketIsAnErrorWhereAThreadWaitsForIt) {
  const BucketPlan plan(parameter_sizes, 256);
  run_ranks(2, [&](Communicator& launched) {
    HostReducer reducer(launched.shared_from_this(), plan, {.replicas = 2, .overlap = true});
    reducer.complete(0, 0);
    EXPECT_THROW(reducer.finish(), Error);
  });
}

TEST(GradientReducer, AnEmptyModelHasNothingToReduce) {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{}, std::vector<int64_t>{0, 0}})
    for (bool overlap : {false, true})
      for (bool shared_memory : {false, true})
        run_ranks(3, [&](Communicator& launched) {
          const BucketPlan plan(sizes, 256);
          HostReducer reducer(launched.shared_from_this(), plan,
                              {.replicas = 5, .overlap = overlap, .shared_memory = shared_memory});
          for (int k = 0; k < reducer.replicas().size(); ++k)
            for (size_t b = 0; b < plan.buckets.size(); ++b) reducer.complete(static_cast<int>(b), k);
          EXPECT_NO_THROW(reducer.finish());
        });
}

TEST(BucketPlan, WhatIsReservedLeadsTheFirstBucket) {
  const std::vector<int64_t> sizes = {100, 7};
  const BucketPlan plan(sizes, int64_t{1} << 20, 1);
  ASSERT_EQ(plan.buckets.size(), 1u);
  EXPECT_EQ(plan.buckets[0].begin, 0);
  EXPECT_EQ(plan.offsets, (std::vector<int64_t>{32, 16}));
  EXPECT_EQ(plan.elements, 16 + 16 + 112);
  const BucketPlan without_parameters({}, 4, 1);
  ASSERT_EQ(without_parameters.buckets.size(), 1u);
  EXPECT_EQ(without_parameters.buckets[0].end, 16);
  EXPECT_TRUE(BucketPlan({}, 4).buckets.empty());
}

TEST(BucketPlan, FirstBucketIsSmallAndNothingOverlaps) {
  const std::vector<int64_t> sizes = {1 << 20, 100, 1 << 19, 1 << 18, 3};
  const BucketPlan plan(sizes, int64_t{4} << 20);
  ASSERT_GE(plan.buckets.size(), 2u);
  EXPECT_EQ(plan.buckets[0].parameters, (std::vector<int>{4, 3})) << "1 MiB closes the first bucket";
  int64_t end = 0;
  for (const Bucket& bucket : plan.buckets) {
    EXPECT_EQ(bucket.begin, end);
    end = bucket.end;
    for (int parameter : bucket.parameters) {
      const int64_t offset = plan.offsets[static_cast<size_t>(parameter)];
      EXPECT_EQ(offset % BucketPlan::alignment, 0);
      EXPECT_GE(offset, bucket.begin);
      EXPECT_LE(offset + sizes[static_cast<size_t>(parameter)], bucket.end);
    }
  }
  EXPECT_EQ(end, plan.elements);
}

}  // namespace
}  // namespace lockstep
