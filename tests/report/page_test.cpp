// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/page.h"

#include <gtest/gtest.h>

#include "lockstep/report/axis.h"
#include "tests/report/well_formed.h"

namespace lockstep {
namespace {

TEST(Escaped, HasNoMarkupAndOnlyCharactersOfXml) {
  EXPECT_EQ(escaped("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
  EXPECT_EQ(escaped("\xC3\xA9\t"), "\xC3\xA9\t");
  EXPECT_EQ(escaped(std::string("\0\x1B[1m", 5)), "\xEF\xBF\xBD\xEF\xBF\xBD[1m");
  EXPECT_EQ(escaped("\xFFz\xC3"), "\xEF\xBF\xBDz\xEF\xBF\xBD") << "bytes that are not UTF-8";
}

TEST(Page, IsWellFormed) {
  const std::string html = page("a & b", tag("p class=\"x\"", escaped("1 < 2")));
  EXPECT_EQ(problem_of_xml(html), "");
  EXPECT_NE(html.find("<title>a &amp; b</title>"), std::string::npos);
  EXPECT_NE(html.find("name=\"viewport\""), std::string::npos);
}

TEST(WellFormed, FindsWhatIsNot) {
  for (const char* text :
       {"<p>", "<p></b>", "<p a=1></p>", "<p>&nbsp;</p>", "<p>a & b</p>", "<p/><", "<p a=\"<\"/>"})
    EXPECT_NE(problem_of_xml(text), "") << text;
}

TEST(Texts, OfNumbersAreForPeople) {
  const std::string space = "\xE2\x80\xAF";
  EXPECT_EQ(whole_text(7), "7");
  EXPECT_EQ(whole_text(1234567), "1" + space + "234" + space + "567");
  EXPECT_EQ(short_number(0.0003), "0.0003");
  EXPECT_EQ(short_number(2.50), "2.5");
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(27940.4), "27" + space + "940");
  EXPECT_EQ(short_number(3e-5), "3e-05");
  EXPECT_EQ(duration_text(0.0412), "41 ms");
  EXPECT_EQ(duration_text(0.005), "5 ms");
  EXPECT_EQ(duration_text(161), "2 min 41 s");
  EXPECT_EQ(duration_text(3600), "1 h");
  EXPECT_EQ(duration_text(86400 * 3 + 3600 * 4), "3 d 4 h");
  EXPECT_EQ(time_text(1795994022.9), "2026-11-29 23:13:42");
}

TEST(Axis, HasRoundTicksAroundItsValues) {
  Axis axis(1.7, 4.2, false, 5);
  EXPECT_EQ(axis.ticks().front(), 1.5);
  EXPECT_EQ(axis.ticks()[1], 2.0);
  axis.extend_to_ticks();
  EXPECT_EQ(axis.least(), 1.5);
  EXPECT_EQ(axis.most(), 4.5);
  EXPECT_EQ(axis.at(3.0), 0.5);
}

TEST(Axis, OfLogarithmsHasTicksInDecades) {
  const Axis axis(1, 100, true, 5);
  EXPECT_EQ(axis.ticks(), (std::vector<double>{1, 3, 10, 30, 100}));
  EXPECT_NEAR(axis.at(10), 0.5, 1e-12);
  EXPECT_LE(Axis(1e-30, 1e30, true, 5).ticks().size(), 8U);
}

TEST(Axis, OfNeighbouringDoublesHasFewTicks) {
  EXPECT_LE(Axis(1e15, 1e15 + 0.25, false, 5).ticks().size(), 8U);
  EXPECT_LE(Axis(0, 1e-310, false, 5).ticks().size(), 8U);
  EXPECT_LE(1e11 / seconds_between_ticks(1e11, 4), 4.0);
}

TEST(Axis, OfOneValueHasAnExtent) {
  const Axis axis(2, 2, false, 5);
  EXPECT_LT(axis.least(), 2.0);
  EXPECT_GT(axis.most(), 2.0);
}

}  // namespace
}  // namespace lockstep
