// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dist/leaf_pool.h"

#include <gtest/gtest.h>

#include "lockstep/tensor/create.h"
#include "tests/support/user_error.h"

namespace lockstep::leaf_pool_test {
namespace {

constexpr int64_t block = ParameterLayout::block;

/// Units of 2, 4 and 2 blocks, in flat order.
ParameterSpace three_units() {
  const auto parameter = [](int64_t size) { return zeros({size}).set_requires_grad(); };
  return ParameterSpace({{"first.weight", parameter(block + 1)},
                         {"middle.bias", parameter(50)},
                         {"middle.weight", parameter(3 * block)},
                         {"last.weight", parameter(2 * block)}});
}

class LeafPoolTest : public testing::Test {
 protected:
  enum Unit { reserved, last, middle, first };  // in the order of the bucket plan

  ParameterSpace space_ = three_units();
  BucketPlan buckets_{space_.layout, Sharding(space_, Shard::gradients, 2, 0), 0};
  std::vector<int64_t> allocated_;
  LeafPool pool_{space_.layout, buckets_, [this](int64_t count) {
                   allocated_.push_back(count);
                   const auto storage = Storage::make(count * 4, cpu_stream());
                   fill(Tensor(storage, 0, {count}, DType::f32), 7.0);  // data of an earlier user
                   return storage;
                 }};
};

TEST_F(LeafPoolTest, AUnitTakesTheSmallestFreeBufferOrANewOne) {
  ASSERT_EQ(buckets_.units.size(), 4u);
  EXPECT_TRUE(pool_.is_settling());
  pool_.acquire(reserved);
  pool_.acquire(last);
  pool_.release(reserved, cpu_stream());
  const float* const of_last = pool_.gradients(last).data<float>();
  pool_.release(last, cpu_stream());
  EXPECT_NE(pool_.acquire(middle).data<float>(), of_last) << "that buffer is too small";
  EXPECT_EQ(pool_.acquire(first).data<float>(), of_last);
  EXPECT_FALSE(pool_.is_settling());
  EXPECT_EQ(allocated_, (std::vector<int64_t>{BucketPlan::reserved, 2 * block, 4 * block}));
}

TEST_F(LeafPoolTest, WhatWasSettledStaysAndAnotherOrderIsRefused) {
  const auto walk = [&](std::initializer_list<Unit> order) {
    std::vector<const float*> places;
    for (const Unit unit : order) {  // at most one unit has a buffer at a time
      places.push_back(pool_.acquire(unit).data<float>());
      pool_.release(unit, cpu_stream());
    }
    return places;
  };
  const std::vector<const float*> places = walk({reserved, middle, last, first});
  EXPECT_EQ(allocated_.size(), 2u);
  EXPECT_EQ(walk({reserved, middle, last, first}), places);
  EXPECT_EQ(walk({first, last}), (std::vector{places[3], places[2]})) << "one at a time in any order";
  pool_.acquire(last);
  EXPECT_FALSE(pool_.is_free(first)) << "they share one buffer";
  expect_contains(error_of([&] { pool_.acquire(first); }), {"another order than the first backward"});
  EXPECT_EQ(allocated_.size(), 2u);
}

TEST_F(LeafPoolTest, WhereNoParameterLiesThereIsZeroEachTime) {
  for (int backward = 0; backward < 2; ++backward) {
    const Tensor gradients = pool_.acquire(middle);
    ASSERT_EQ(gradients.size(), 4 * block);
    for (const Parameter& parameter : space_.layout.parameters()) {
      const int64_t begin = BucketPlan::reserved + parameter.place.begin - buckets_.units[middle].begin;
      if (parameter.name.starts_with("middle"))
        fill(gradients.slice(begin, begin + parameter.tensor.size()), 1.0);
    }
    int64_t ones = 0, zeros = 0;
    for (const double value : to_doubles(gradients)) {
      ones += value == 1.0;
      zeros += value == 0.0;
    }
    EXPECT_EQ(ones, 3 * block + 50);
    EXPECT_EQ(zeros, block - 50);
    fill(gradients, 9.0);
    pool_.release(middle, cpu_stream());
    EXPECT_FALSE(static_cast<bool>(pool_.gradients(middle)));
  }
}

TEST_F(LeafPoolTest, ReleasingAllFreesEveryBuffer) {
  for (const Unit unit : {reserved, last, middle, first}) pool_.acquire(unit);
  pool_.release_all();
  for (const Unit unit : {reserved, last, middle, first}) {
    EXPECT_TRUE(pool_.is_free(unit));
    EXPECT_FALSE(static_cast<bool>(pool_.gradients(unit)));
    EXPECT_NO_THROW(pool_.release(unit, cpu_stream())) << "release() without gradients";
    EXPECT_NO_THROW(pool_.acquire(unit));
  }
}

}  // namespace
}  // namespace lockstep::leaf_pool_test
