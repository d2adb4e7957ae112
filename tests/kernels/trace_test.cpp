// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/trace.h"

#include <gtest/gtest.h>
#include <thread>

namespace lockstep {
namespace {

class TraceTest : public ::testing::Test {
 protected:
  void SetUp() override { trace_.clear(); }
  void TearDown() override {
    trace_.stop();
    trace_.clear();
  }

  Trace& trace_ = Trace::current();
};

TEST_F(TraceTest, CountsRangesByNameWhileItIsOn) {
  { const TraceRange before("before"); }
  trace_.start();
  for (int i = 0; i < 3; ++i) {
    const TraceRange outer("outer");
    const TraceRange inner("inner");
  }
  trace_.stop();
  { const TraceRange after("after"); }
  ASSERT_EQ(trace_.totals().size(), 2U);
  EXPECT_EQ(trace_.totals().at("outer").calls, 3);
  EXPECT_EQ(trace_.totals().at("inner").calls, 3);
  EXPECT_GE(trace_.totals().at("outer").nanoseconds, trace_.totals().at("inner").nanoseconds);
  EXPECT_GE(trace_.totals().at("inner").nanoseconds, 0);
}

TEST_F(TraceTest, IgnoresARangeThatWasOpenAtTheStart) {
  {
    const TraceRange open("open");
    trace_.start();
  }
  EXPECT_TRUE(trace_.totals().empty());
}

TEST_F(TraceTest, BelongsToItsThread) {
  trace_.start();
  std::thread([] { const TraceRange elsewhere("elsewhere"); }).join();
  EXPECT_TRUE(trace_.totals().empty());
}

}  // namespace
}  // namespace lockstep
