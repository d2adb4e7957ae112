// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// A range of time in a trace, in milliseconds since the beginning of the trace.
struct TracedSpan {
  std::string name;
  std::string row;
  int64_t number = -1;  ///< of the step or the bucket; -1: none
  double begin = 0, end = 0;
};

/// The spans of a rank, in the order of their begins. A span comes before those that it contains.
struct RankSpans {
  int rank = 0;
  std::vector<TracedSpan> spans;
};

/// Reads the traces of a run's folder, in the order of ranks. A file that is no trace is skipped.
std::vector<RankSpans> read_traces(const std::string& folder);

/// Reads a trace of metrics/step_trace.h. Throws UserError if the text is none.
RankSpans read_trace(const std::string& text, const std::string& origin);

/// A step in a trace: the time from its begin to that of the next step.
struct TracedStep {
  int64_t number = 0;
  double begin = 0, end = 0;  ///< in milliseconds since the beginning of the trace
};

/// Returns the step whose duration is the median; nothing if no whole step was traced.
std::optional<TracedStep> median_step(const RankSpans& trace);
/// Returns the step of this number.
std::optional<TracedStep> step_of(const RankSpans& trace, int64_t number);
/// Returns the spans within a step besides the step's own. Spans that cross its ends are cut. Times count
/// from the step's begin.
std::vector<TracedSpan> spans_within(const RankSpans& trace, const TracedStep& step);

}  // namespace lockstep
