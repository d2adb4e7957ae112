// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/spans.h"

#include <gtest/gtest.h>
#include <thread>

namespace lockstep {
namespace {

class SpansTest : public ::testing::Test {
 protected:
  void TearDown() override { recorder_.stop(); }

  SpanRecorder& recorder_ = SpanRecorder::of_process();
};

TEST_F(SpansTest, AreRecordedWhileTheRecorderIsOn) {
  { const SpanRange before("before"); }
  recorder_.start();
  {
    const SpanRange outer("outer", SpanRow::step, 7);
    const SpanRange inner("inner", SpanRow::buckets);
  }
  const std::vector<Span> spans = recorder_.stop();
  { const SpanRange after("after"); }
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_STREQ(spans[0].name, "inner");
  EXPECT_EQ(spans[0].row, SpanRow::buckets);
  EXPECT_EQ(spans[0].number, -1);
  EXPECT_EQ(spans[1].number, 7);
  EXPECT_LE(spans[1].begin, spans[0].begin);
  EXPECT_LE(spans[0].begin, spans[0].end);
  EXPECT_LE(spans[0].end, spans[1].end);
  EXPECT_TRUE(recorder_.stop().empty());
}

TEST_F(SpansTest, ThatWereOpenAtTheStartOrTheStopAreLeftOut) {
  {
    const SpanRange open("open at the start");
    recorder_.start();
  }
  const SpanRange open("open at the stop");
  EXPECT_TRUE(recorder_.stop().empty());
}

TEST_F(SpansTest, OfAllThreadsAreInOneRecorder) {
  recorder_.start();
  std::thread([] { const SpanRange elsewhere("elsewhere"); }).join();
  EXPECT_EQ(recorder_.stop().size(), 1U);
}

TEST_F(SpansTest, HaveABound) {
  recorder_.start();
  for (int i = 0; i < 100'010; ++i) const SpanRange one("one");
  EXPECT_EQ(recorder_.stop().size(), 100'000U);
}

}  // namespace
}  // namespace lockstep
