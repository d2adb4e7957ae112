// SPDX-License-Identifier: Apache-2.0
#include "kernels/sum.h"

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
      // At most 128 + 5 additions in a lane of a block; the reference itself is off by less than size *
      // 2^-53.
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
  Values one({1}), three({1}), one_squared({1}, DType::f64), three_squared({1}, DType::f64);
  launch_on(1, Sum{.x = x.view(), .y = one.view()});
  launch_on(3, Sum{.x = x.view(), .y = three.view()});
  launch_on(1, SumOfSquares{.inputs = {x.view()}, .y = one_squared.view()});
  launch_on(3, SumOfSquares{.inputs = {x.view()}, .y = three_squared.view()});
  EXPECT_TRUE(one == three);
  EXPECT_TRUE(one_squared == three_squared);
}

TEST(SumOfSquares, MatchesReferenceOverSeveralTensors) {
  Values a = Values::uniform({3, 5}, DType::f32, 1), b = Values::uniform({9000}, DType::f64, 2), none({0});
  Values y({}, DType::f64);
  launch_on(1, SumOfSquares{.inputs = {a.view(), none.view(), b.view()}, .y = y.view()});
  const double expected = dot(a, a) + dot(b, b);
  EXPECT_NEAR(y[0], expected, 9015 * 0x1p-52 * expected);
}

/// A shard that ends on a block has the same partial sums: the norm does not show how tensors are cut.
TEST(SumOfSquares, CutsAtBlocksDoNotShow) {
  Values x = Values::uniform({3 * sum_block + 11}, DType::f32, 3);
  View head = x.view(), tail = x.view();
  head.shape = {2 * sum_block};
  tail.shape = {sum_block + 11};
  tail.data = static_cast<float*>(tail.data) + 2 * sum_block;
  Values whole({1}, DType::f64), cut({1}, DType::f64);
  launch_on(1, SumOfSquares{.inputs = {x.view()}, .y = whole.view()});
  launch_on(1, SumOfSquares{.inputs = {head, tail}, .y = cut.view()});
  EXPECT_TRUE(whole == cut);
}

struct Clipped {
  double norm;
  double factor;
};

Clipped clip(double sum_of_squares, double max_norm) {
  Values sum({}, DType::f64), factor({});
  sum.set(0, sum_of_squares);
  launch_on(
      1,
      ClipFactor{
          .sum_of_squares = sum.view(), .max_norm = max_norm, .norm = sum.view(), .factor = factor.view()});
  return {sum[0], factor[0]};
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
