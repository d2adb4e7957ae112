// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kernels/values.h"
#include "lockstep/kernels/sum.h"

namespace lockstep::testing {
namespace {

struct SumCase {
  int64_t outer, count, inner;
};

// One run and several runs, and one strip of columns and several. Each way has one block and several blocks
// with a rest.
const std::vector<SumCase> sum_cases = {{1, 1, 1},    {3, 0, 1},     {2, 0, 5},    {5, 7, 1},
                                        {4, 7, 3},    {2, 64, 65},   {3, 65, 130}, {1, 1024, 7},
                                        {2, 1025, 9}, {1, 5000, 70}, {3, 4096, 1}, {2, 4097, 1},
                                        {0, 3, 2},    {700, 33, 1},  {40, 200, 64}};

DimensionSum sum_of(Values& x, Values& y, const SumCase& c) {
  return {.x = x.view(), .y = y.view(), .count = c.count, .inner = c.inner};
}

TEST(DimensionSum, MatchesReference) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const SumCase& c : sum_cases) {
      SCOPED_TRACE(concat("[", c.outer, ", ", c.count, ", ", c.inner, "] ", dtype));
      Values x = Values::uniform({c.outer, c.count, c.inner}, dtype, 1), y({c.outer, c.inner}, dtype);
      launch_on(1, sum_of(x, y, c));
      for (int64_t i = 0; i < y.size(); ++i) {
        double expected = 0.0, magnitude = 0.0;
        for (int64_t n = 0; n < c.count; ++n) {
          const double term = x[(i / c.inner * c.count + n) * c.inner + i % c.inner];
          expected += term, magnitude += std::fabs(term);
        }
        // A lane of a block has at most 128 + 5 additions. A run has 64 and its block 16 instead. The result
        // is rounded once more. The reference has at most 5000 additions.
        ASSERT_NEAR(y[i], expected, (134 * epsilon_of(dtype) / 2 + 5000 * 0x1p-53) * magnitude) << i;
      }
    }
}

TEST(DimensionSum, ThreadsDoNotShowInTheBits) {
  for (const SumCase& c : sum_cases) {
    Values x = Values::uniform({c.outer, c.count, c.inner}, DType::f32, 1);
    Values one({c.outer, c.inner}), three({c.outer, c.inner});
    launch_on(1, sum_of(x, one, c));
    launch_on(3, sum_of(x, three, c));
    EXPECT_TRUE(one == three) << c.outer << " " << c.count << " " << c.inner;
  }
}

// A sum depends on its terms alone. A batch can therefore be cut anywhere, and a tensor can have other
// columns next to the summed ones.
TEST(DimensionSum, ASumDependsOnItsTermsAlone) {
  constexpr int64_t count = 1500;
  Values x = Values::uniform({3, count, 130}, DType::f32, 1), y({3, 130});
  launch_on(1, DimensionSum{.x = x.view(), .y = y.view(), .count = count, .inner = 130});
  Values part({1, count, 2}), of_part({1, 2});
  for (int64_t n = 0; n < count; ++n)
    for (int64_t j = 0; j < 2; ++j) part.set(n * 2 + j, x[(count + n) * 130 + 77 + j]);
  launch_on(1, DimensionSum{.x = part.view(), .y = of_part.view(), .count = count, .inner = 2});
  for (int64_t j = 0; j < 2; ++j) EXPECT_EQ(of_part[j], y[130 + 77 + j]);
}

TEST(DimensionSum, OfElementsBesideEachOtherIsSum) {
  Values x = Values::uniform({10000}, DType::f32, 1), whole({}), y({1});
  launch_on(1, Sum{.x = x.view(), .y = whole.view()});
  launch_on(1, DimensionSum{.x = x.view(), .y = y.view(), .count = 10000, .inner = 1});
  EXPECT_EQ(y[0], whole[0]);
}

TEST(DimensionSum, ShapesThatDoNotFitAreRefused) {
  Values x({2, 3}), y({2}), wide({2}, DType::f64);
  EXPECT_THROW(launch_on(1, DimensionSum{.x = x.view(), .y = y.view(), .count = 2, .inner = 1}), Error);
  EXPECT_THROW(launch_on(1, DimensionSum{.x = x.view(), .y = wide.view(), .count = 3, .inner = 1}), Error);
}

}  // namespace
}  // namespace lockstep::testing
