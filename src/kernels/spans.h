// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "lockstep/core/clock.h"

namespace lockstep {

/// The rows of a time line. Two spans of a row are apart, or one contains the other.
enum class SpanRow { step, buckets, data, snapshots, count };

/// A range of time that this process spent on something.
struct Span {
  const char* name = "";  ///< a string literal
  SpanRow row = SpanRow::step;
  int64_t number = -1;  ///< of the step or the bucket; -1: none
  Clock::time_point begin, end;
};

/// The spans of all threads of this process. It is off until started.
class SpanRecorder {
 public:
  /// Returns the recorder of this process.
  static SpanRecorder& of_process();

  void start();
  /// Returns the spans since start() in the order of their ends. A span that has not ended is left out.
  std::vector<Span> stop();
  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }
  void add(const Span& span);

 private:
  std::atomic<bool> is_on_{false};
  std::mutex mutex_;
  std::vector<Span> spans_;
};

/// A span from construction to destruction. It is recorded if the recorder is on at both. Otherwise it costs
/// a load and a branch.
class SpanRange {
 public:
  explicit SpanRange(const char* name, SpanRow row = SpanRow::step, int64_t number = -1) {
    if (!SpanRecorder::of_process().is_on()) return;
    span_ = {.name = name, .row = row, .number = number, .begin = Clock::now(), .end = {}};
  }
  ~SpanRange() {
    if (span_.begin == Clock::time_point{}) return;
    span_.end = Clock::now();
    SpanRecorder::of_process().add(span_);
  }
  SpanRange(const SpanRange&) = delete;
  SpanRange& operator=(const SpanRange&) = delete;

 private:
  Span span_;
};

}  // namespace lockstep
