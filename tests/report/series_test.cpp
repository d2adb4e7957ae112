// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/series.h"

#include <cmath>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Series, OfFewValuesHasABinForEach) {
  Series series(8);
  for (int i = 1; i <= 8; ++i) series.add(i, i * i);
  ASSERT_EQ(series.bins().size(), 8U);
  EXPECT_FALSE(series.is_condensed());
  EXPECT_EQ(series.bins()[2].x(), 3.0);
  EXPECT_EQ(series.bins()[2].mean(), 9.0);
}

TEST(Series, OfManyValuesKeepsTheirRangesInABoundedNumberOfBins) {
  for (const int64_t count : {9, 100, 1023, 1024, 1025, 1'000'000}) {
    Series series(8);
    for (int64_t i = 0; i < count; ++i) {
      const bool is_peak = i == count / 3;
      series.add(static_cast<double>(i), is_peak ? 50.0 : static_cast<double>(i % 2));
    }
    EXPECT_TRUE(series.is_condensed());
    EXPECT_GT(series.bins().size(), 4U) << count;
    EXPECT_LE(series.bins().size(), 8U) << count;
    int64_t values = 0;
    double most = 0;
    for (const Bin& bin : series.bins()) {
      values += bin.values;
      most = std::max(most, bin.most);
      EXPECT_EQ(bin.least, 0.0) << "each bin has an even value besides the last of odd counts";
      const bool is_whole = &bin != &series.bins().back();
      EXPECT_TRUE(!is_whole || bin.values == series.bins().front().values);
    }
    EXPECT_EQ(values, count);
    EXPECT_EQ(most, 50.0) << "no peak is lost";
  }
}

TEST(Series, CountsWhatIsNotFinite) {
  Series series(2);
  series.add(1, 4.0);
  series.add(2, NAN);
  ASSERT_EQ(series.bins().size(), 2U);
  EXPECT_EQ(series.bins()[1].values, 0);
  EXPECT_EQ(series.bins()[1].missing, 1);
  series.add(3, INFINITY);
  series.add(4, -2.0);
  ASSERT_EQ(series.bins().size(), 2U);
  EXPECT_EQ(series.bins()[0].mean(), 4.0);
  EXPECT_EQ(series.bins()[0].least, 4.0);
  EXPECT_EQ(series.bins()[1].least, -2.0);
  EXPECT_EQ(series.bins()[1].most, -2.0);
}

TEST(Median, IsTheValueInTheMiddle) {
  EXPECT_EQ(median({3, 1, 2}), 2.0);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.0);
  EXPECT_EQ(median({NAN, 5}), 5.0);
  EXPECT_EQ(median({}), 0.0);
}

}  // namespace
}  // namespace lockstep
