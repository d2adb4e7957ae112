// SPDX-License-Identifier: Apache-2.0
#include "lockstep/report/step_spans.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/text.h"
#include "lockstep/json/json_field.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Field = JsonField<Json>;

constexpr size_t most_trace_bytes = size_t{64} << 20;
/// A double has the microseconds of longer times no more.
constexpr int64_t most_microseconds = int64_t{1} << 53;
/// No span of a run has a longer name.
constexpr size_t most_span_name_bytes = 40;
/// A page shows no more ranks.
constexpr size_t most_traces = 8;

/// Returns the steps in their order. The last one ends with its own span.
std::vector<TracedStep> steps_of(const RankSpans& trace) {
  std::vector<TracedStep> steps;
  for (const TracedSpan& span : trace.spans) {
    if (span.name != "step") continue;
    if (!steps.empty()) steps.back().end = span.begin;
    steps.push_back({span.number, span.begin, span.end});
  }
  return steps;
}

}  // namespace

RankSpans read_trace(const std::string& text, const std::string& origin) {
  RankSpans trace;
  std::map<int64_t, std::string> rows;
  int64_t first = 0;
  for (const Field& event : Field(text, origin, most_trace_bytes)["traceEvents"].elements()) {
    const auto row = event["tid"].whole<int64_t>();
    if (event["ph"].text() == "M") {
      trace.rank = event["pid"].whole<int>(0);
      if (event["name"].text() == "thread_name") rows[row] = event["args"]["name"].text();
      continue;
    }
    const auto begin = event["ts"].whole<int64_t>(0, most_microseconds);
    if (trace.spans.empty()) first = begin;
    const double begin_ms = static_cast<double>(begin - first) / 1e3;
    trace.spans.push_back(
        {.name = shortened(event["name"].text(), most_span_name_bytes),
         .row = rows[row],
         .number = event.has("args") ? event["args"]["number"].whole<int64_t>() : -1,
         .begin = begin_ms,
         .end = begin_ms + static_cast<double>(event["dur"].whole<int64_t>(0, most_microseconds)) / 1e3});
  }
  std::ranges::stable_sort(trace.spans, [](const TracedSpan& a, const TracedSpan& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  return trace;
}

std::vector<RankSpans> read_traces(const std::string& folder) {
  std::vector<RankSpans> traces;
  std::error_code ignored;
  for (fs::directory_iterator file(folder, ignored), end; file != end; file.increment(ignored)) {
    const std::string name = file->path().filename().string();
    if (!name.starts_with("trace-rank") || !name.ends_with(".json")) continue;
    try {
      traces.push_back(read_trace(read_file(file->path()).value_or(""), name));
    } catch (const UserError&) {
      // The report shows the other ranks.
    }
  }
  std::ranges::sort(traces, {}, &RankSpans::rank);
  if (traces.size() > most_traces) traces.resize(most_traces);
  return traces;
}

std::optional<TracedStep> median_step(const RankSpans& trace) {
  std::vector<TracedStep> steps = steps_of(trace);
  if (steps.empty()) return std::nullopt;
  std::ranges::stable_sort(steps, {}, [](const TracedStep& step) { return step.end - step.begin; });
  return steps[(steps.size() - 1) / 2];
}

std::optional<TracedStep> step_of(const RankSpans& trace, int64_t number) {
  for (const TracedStep& step : steps_of(trace))
    if (step.number == number) return step;
  return std::nullopt;
}

std::vector<TracedSpan> spans_within(const RankSpans& trace, const TracedStep& step) {
  std::vector<TracedSpan> spans;
  for (TracedSpan span : trace.spans) {
    if (span.name == "step" || span.end <= step.begin || span.begin >= step.end) continue;
    span.begin = std::max(span.begin, step.begin) - step.begin;
    span.end = std::min(span.end, step.end) - step.begin;
    spans.push_back(span);
  }
  return spans;
}

}  // namespace lockstep
