// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/sum.h"

#include <gtest/gtest.h>

#include "kernels/values.h"

namespace lockstep::testing {
namespace {

TEST(Sum, MatchesReference) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t size : {0, 1, 7, 65, 4096, 4097, 100000}) {
      Values x = Values::uniform({size}, dtype, 1);
      Values y({1}, dtype);
      launch_on(1, Sum{.x = x.view(), .y = y.view()});
      double expected = 0.0, magnitude = 0.0;
      for (int64_t i = 0; i < size; ++i) expected += x[i], magnitude += std::fabs(x[i]);
      // A lane of a block has at most 128 + 5 additions. The reference itself errs by less than size * 2^-53.
      EXPECT_NEAR(y[0], expected, 133 * epsilon_of(dtype) * magnitude + 1e5 * 0x1p-53 * magnitude);
    }
}

TEST(Sum, OfIntegersIsExact) {
  Values x({70001});
  for (int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>(i % 13 - 6));
  Values y({});
  launch_on(3, Sum{.x = x.view(), .y = y.view()});
  double expected = 0.0;
  for (int64_t i = 0; i < x.size(); ++i) expected += x[i];
  EXPECT_EQ(y[0], expected);
}

TEST(Sum, ThreadsDoNotShowInTheBits) {
  Values x = Values::uniform({200001}, DType::f32, 1);
  Values one({1}), three({1}), one_squared({49}, DType::f64), three_squared({49}, DType::f64);
  launch_on(1, Sum{.x = x.view(), .y = one.view()});
  launch_on(3, Sum{.x = x.view(), .y = three.view()});
  launch_on(1, BlockSquares{.x = x.view(), .y = one_squared.view(), .ranges = {{0, 49}}});
  launch_on(3, BlockSquares{.x = x.view(), .y = three_squared.view(), .ranges = {{0, 49}}});
  EXPECT_TRUE(one == three);
  EXPECT_TRUE(one_squared == three_squared);
}

TEST(BlockSquares, MatchReferenceAndTouchTheirBlocksOnly) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    Values x = Values::uniform({3 * sum_block + 11}, dtype, 3);
    Values whole({4}, DType::f64), cut({4}, DType::f64);
    cut.set(2, -1.0);
    launch_on(2, BlockSquares{.x = x.view(), .y = whole.view(), .ranges = {{0, 4}}});
    launch_on(2, BlockSquares{.x = x.view(), .y = cut.view(), .ranges = {{0, 2}, {3, 4}}});
    EXPECT_EQ(cut[2], -1.0);
    for (const int64_t block : {0, 1, 3}) EXPECT_EQ(cut[block], whole[block]);
    double expected = 0.0;
    for (int64_t i = sum_block; i < 2 * sum_block; ++i) expected += x[i] * x[i];
    EXPECT_NEAR(whole[1], expected, sum_block * 0x1p-52 * expected);
  }
}

TEST(BlockSquares, OfPartsThatLieElsewhereHaveTheBitsOfTheWhole) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    Values x = Values::uniform({9 * sum_block + 77}, dtype, 3), parts({4 * sum_block + 77}, dtype);
    const auto put = [&](int64_t block, int64_t from, int64_t size) {
      std::memcpy(part_of(parts.view(), block * sum_block, size).data,
                  part_of(x.view(), from * sum_block, size).data, static_cast<size_t>(size * bytes(dtype)));
    };
    put(2, 1, 2 * sum_block);
    put(0, 5, 2 * sum_block);
    put(4, 9, 77);
    Values whole({10}, DType::f64), cut({10}, DType::f64);
    launch_on(2, BlockSquares{.x = x.view(), .y = whole.view(), .ranges = {{0, 10}}});
    launch_on(
        2, BlockSquares{.x = parts.view(), .y = cut.view(), .ranges = {{1, 3, -1}, {5, 7, 5}, {9, 10, 5}}});
    for (int64_t block = 0; block < 10; ++block) {
      const bool is_part = block == 1 || block == 2 || block == 5 || block == 6 || block == 9;
      EXPECT_EQ(cut[block], is_part ? whole[block] : 0.0) << dtype << " " << block;
    }
  }
}

TEST(BlockSquares, BlocksOutsideAreRefused) {
  Values x({sum_block + 1}), y({3}, DType::f64);
  const auto square = [&](const BlockSquares::Blocks& blocks) {
    launch_on(1, BlockSquares{.x = x.view(), .y = y.view(), .ranges = {blocks}});
  };
  square({1, 3, 1});
  for (const BlockSquares::Blocks& of_y : {BlockSquares::Blocks{2, 4, 2}, {1, 1}, {-1, 1, -1}})
    EXPECT_THROW(square(of_y), Error);
  for (const BlockSquares::Blocks& of_x : {BlockSquares::Blocks{0, 3}, {0, 1, 1}, {1, 2, -1}})
    EXPECT_THROW(square(of_x), Error);
}

struct Clipped {
  double norm;
  double factor;
};

Clipped clip(double sum_of_squares, double max_norm) {
  Values squares({3}, DType::f64), norm({}, DType::f64), factor({});
  squares.set(0, sum_of_squares);
  launch_on(
      1, ClipFactor{
             .squares = squares.view(), .max_norm = max_norm, .norm = norm.view(), .factor = factor.view()});
  return {norm[0], factor[0]};
}

TEST(ClipFactor, BringsTheNormDownToTheLargest) {
  EXPECT_EQ(clip(25.0, 1.0).norm, 5.0);
  EXPECT_EQ(clip(25.0, 1.0).factor, static_cast<float>(1.0 / (5.0 + 1e-6)));
  EXPECT_EQ(clip(25.0, 5.1).factor, 1.0);
  EXPECT_EQ(clip(25.0, 0.0).factor, 1.0);
  EXPECT_EQ(clip(0.0, 1.0).factor, 1.0);
}

TEST(ClipFactor, IsNanIfTheNormIsNotFinite) {
  for (const double max_norm : {0.0, 1.0}) {
    EXPECT_TRUE(std::isnan(clip(HUGE_VAL, max_norm).factor));
    EXPECT_TRUE(std::isnan(clip(std::nan(""), max_norm).factor));
    EXPECT_EQ(clip(HUGE_VAL, max_norm).norm, HUGE_VAL);
  }
}

}  // namespace
}  // namespace lockstep::testing
