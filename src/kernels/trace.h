// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <string>

namespace lockstep {

/// The time that this thread spent in each named range. Ranges nest, and each counts its whole length.
class Trace {
 public:
  struct Total {
    int64_t calls = 0;
    int64_t nanoseconds = 0;
  };

  /// Returns the recorder of the calling thread, which is off until started.
  static Trace& current() {
    thread_local Trace trace;
    return trace;
  }

  void start() { enabled_ = true; }
  void stop() { enabled_ = false; }
  void clear() { totals_.clear(); }
  bool enabled() const { return enabled_; }
  void add(const char* name, int64_t nanoseconds) {
    Total& total = totals_[name];
    ++total.calls;
    total.nanoseconds += nanoseconds;
  }
  const std::map<std::string, Total>& totals() const { return totals_; }

 private:
  bool enabled_ = false;
  std::map<std::string, Total> totals_;
};

/// A range that adds the time between its construction and destruction to the current trace, if that is on.
class TraceRange {
 public:
  explicit TraceRange(const char* name) : name_(name), trace_(Trace::current()) {
    if (trace_.enabled()) begin_ = std::chrono::steady_clock::now();
  }
  ~TraceRange() {
    if (!trace_.enabled() || begin_ == decltype(begin_){}) return;
    const auto elapsed = std::chrono::steady_clock::now() - begin_;
    trace_.add(name_, std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count());
  }
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;

 private:
  const char* name_;
  Trace& trace_;
  std::chrono::steady_clock::time_point begin_{};
};

}  // namespace lockstep
