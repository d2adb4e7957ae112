// SPDX-License-Identifier: Apache-2.0
#include "lockstep/metrics/step_trace.h"

#include <array>
#include <chrono>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/log.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::duration_cast;
using std::chrono::microseconds;

constexpr std::array<const char*, static_cast<size_t>(SpanRow::count)> row_names = {"step", "buckets", "data",
                                                                                    "snapshots"};

Json name_of(const char* what, int rank, size_t row, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", row}, {"args", {{"name", name}}}};
}

}  // namespace

std::string trace_file(int rank) { return concat("trace-rank", rank, ".json"); }

std::string to_chrome_trace(const std::vector<Span>& spans, int rank) {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  const auto shift = duration_cast<microseconds>(since_1970 - Clock::now().time_since_epoch());
  // Both ends are rounded down, so that a rounded span stays within the one around it.
  const auto rounded = [&](Clock::time_point time) {
    return (std::chrono::floor<microseconds>(time.time_since_epoch()) + shift).count();
  };
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  text += name_of("process_name", rank, 0, concat("rank ", rank)).dump();
  for (size_t row = 0; row < row_names.size(); ++row)
    text += ",\n" + name_of("thread_name", rank, row, row_names[row]).dump();
  for (const Span& span : spans) {
    Json event = {{"name", span.name},
                  {"ph", "X"},
                  {"ts", rounded(span.begin)},
                  {"dur", rounded(span.end) - rounded(span.begin)},
                  {"pid", rank},
                  {"tid", static_cast<int>(span.row)}};
    if (span.number >= 0) event["args"]["number"] = span.number;
    text += ",\n" + event.dump();
  }
  return text + "\n]}\n";
}

void StepTrace::count_step() {
  if (begun_++ == skipped_steps) {
    SpanRecorder::of_process().start();
    records_ = true;
  } else if (begun_ > skipped_steps + recorded_steps) {
    write();
  }
}

void StepTrace::write() {
  if (!records_) return;
  records_ = false;
  try {
    write_file(path_, to_chrome_trace(SpanRecorder::of_process().stop(), rank_));
  } catch (const std::exception& problem) {
    log_warning(concat("the spans of the steps cannot be written: ", problem.what()));
  }
}

}  // namespace lockstep
