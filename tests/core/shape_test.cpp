// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/shape.h"

#include <gtest/gtest.h>
#include <vector>

namespace lockstep {
namespace {

TEST(Shape, AScalarHasOneElement) {
  const Shape scalar;
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.elements(), 1);
  EXPECT_EQ(scalar.rows(), 1);
  EXPECT_EQ(concat(scalar), "[]");
}

TEST(Shape, ExtentsCountFromBothEnds) {
  const Shape shape{2, 3, 5};
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[-1], 5);
  EXPECT_EQ(shape[-3], 2);
  EXPECT_EQ(shape.elements(), 30);
  EXPECT_EQ(shape.rows(), 6);
  EXPECT_EQ(shape.with_last(7), (Shape{2, 3, 7}));
  EXPECT_EQ(concat(shape), "[2, 3, 5]");
  EXPECT_EQ(std::vector<int64_t>(shape.begin(), shape.end()), (std::vector<int64_t>{2, 3, 5}));
}

TEST(Shape, RowsDoNotDependOnTheirLength) {
  EXPECT_EQ((Shape{4, 0}).elements(), 0);
  EXPECT_EQ((Shape{4, 0}).rows(), 4);
  EXPECT_EQ((Shape{0, 4}).rows(), 0);
  EXPECT_EQ((Shape{4}).rows(), 1);
}

TEST(Shape, EqualityLooksAtRankAndExtents) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
}

TEST(Shape, ImpossibleExtentsAreRefused) {
  EXPECT_THROW((Shape{1, 1, 1, 1, 1}), Error);
  EXPECT_THROW((Shape{3, -1}), Error);
}

}  // namespace
}  // namespace lockstep
