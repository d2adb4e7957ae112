// SPDX-License-Identifier: Apache-2.0
#include "lockstep/metrics/step_trace.h"

#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_directory.h"

namespace lockstep {
namespace {

/// Returns the events of a kind: "X" are spans, "M" are names.
std::vector<nlohmann::json> events_of(const std::string& text, const std::string& kind) {
  std::vector<nlohmann::json> found;
  const nlohmann::json trace = nlohmann::json::parse(text);
  for (const nlohmann::json& event : trace["traceEvents"])
    if (event["ph"] == kind) found.push_back(event);
  return found;
}

/// Runs so many steps, each with a forward and a bucket.
void run_steps(StepTrace& trace, int64_t steps) {
  for (int64_t step = 1; step <= steps; ++step) {
    const SpanRange whole = trace.begin_step(step);
    const SpanRange forward("forward");
    const SpanRange bucket("bucket", SpanRow::buckets, 3);
  }
}

TEST(ChromeTrace, HasSpansThatNestInRowsWithNames) {
  const Clock::time_point begin = Clock::now();
  const auto at = [&](int64_t nanoseconds) { return begin + std::chrono::nanoseconds(nanoseconds); };
  const std::string text = to_chrome_trace({{"inner", SpanRow::step, -1, at(1900), at(3100)},
                                            {"bucket", SpanRow::buckets, 4, at(0), at(50)},
                                            {"outer", SpanRow::step, 12, at(1100), at(3999)}},
                                           5);
  const std::vector<nlohmann::json> spans = events_of(text, "X");
  ASSERT_EQ(spans.size(), 3U);
  const auto first = [&](int i) { return spans[static_cast<size_t>(i)]["ts"].get<int64_t>(); };
  const auto end = [&](int i) { return first(i) + spans[static_cast<size_t>(i)]["dur"].get<int64_t>(); };
  EXPECT_LE(first(2), first(0)) << "rounded to microseconds, the outer span still contains the inner one";
  EXPECT_GE(end(2), end(0));
  EXPECT_GT(first(0), int64_t{1'700'000'000} * 1'000'000) << "times count from 1970";
  EXPECT_EQ(spans[0]["pid"], 5);
  EXPECT_NE(spans[0]["tid"], spans[1]["tid"]);
  EXPECT_EQ(spans[1]["args"]["number"], 4);
  EXPECT_FALSE(spans[0].contains("args"));
  const std::vector<nlohmann::json> names = events_of(text, "M");
  ASSERT_EQ(names.size(), 5U);
  EXPECT_EQ(names[0]["args"]["name"], "rank 5");
  EXPECT_EQ(names[2]["args"]["name"], "buckets");
}

TEST(StepTrace, HasTheStepsAfterTheFirstTwo) {
  const TemporaryDirectory folder;
  const std::string path = folder / trace_file(0);
  StepTrace trace(path, 0);
  run_steps(trace, StepTrace::skipped_steps + StepTrace::recorded_steps);
  EXPECT_FALSE(std::filesystem::exists(path));
  run_steps(trace, 5);
  std::vector<int64_t> steps;
  for (const nlohmann::json& span : events_of(read_text(path), "X"))
    if (span["name"] == "step") steps.push_back(span["args"]["number"]);
  EXPECT_EQ(steps, (std::vector<int64_t>{3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
}

TEST(StepTrace, OfAShortRunIsWrittenAtItsEnd) {
  const TemporaryDirectory folder;
  const std::string path = folder / trace_file(2);
  {
    StepTrace trace(path, 2);
    run_steps(trace, 4);
  }
  EXPECT_EQ(events_of(read_text(path), "X").size(), 6U);
  { StepTrace trace(folder / "none.json", 0); }
  EXPECT_FALSE(std::filesystem::exists(folder / "none.json")) << "no step was recorded";
}

TEST(StepTrace, WithoutAPathRecordsNothing) {
  StepTrace trace("", 0);
  run_steps(trace, 4);
  EXPECT_FALSE(SpanRecorder::of_process().is_on());
}

}  // namespace
}  // namespace lockstep
