// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/kernels/spans.h"

namespace lockstep {

/// Returns the name of the file in log.dir that has the spans of a rank.
std::string trace_file(int rank);

/// Returns spans of a rank in Chrome's trace event format, which Perfetto reads too. The process is the rank,
/// a thread is a row, and times are microseconds since 1970.
std::string to_chrome_trace(const std::vector<Span>& spans, int rank);

/// A recorder of the spans of some early steps of a start, which it writes into a file. The first steps are
/// left out, because they allocate memory and record graphs.
class StepTrace {
 public:
  static constexpr int64_t skipped_steps = 2;
  static constexpr int64_t recorded_steps = 10;

  /// Writes to `path`; empty: records nothing.
  StepTrace(std::string path, int rank) : path_(std::move(path)), rank_(rank) {}
  /// Writes the spans of a run that ends before the last recorded step.
  ~StepTrace() { write(); }
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  /// Call it when a step begins. Returns the span of the step.
  SpanRange begin_step(int64_t step) {
    if (!path_.empty()) [[unlikely]]
      count_step();
    return SpanRange("step", SpanRow::step, step);
  }

 private:
  void count_step();
  void write();

  std::string path_;
  int rank_;
  int64_t begun_ = 0;  ///< steps of this start
  bool records_ = false;
};

}  // namespace lockstep
