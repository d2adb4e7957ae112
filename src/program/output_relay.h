// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <string_view>
#include <thread>

#include "lockstep/core/clock.h"
#include "lockstep/core/descriptor.h"
#include "lockstep/core/process.h"

namespace lockstep {

/// A pipe whose contents a thread writes to a descriptor of this process. Children that write to the pipe
/// wait for a slow reader of that descriptor. They do not notice when it is gone or when a write fails: the
/// thread then reads on and drops the contents.
class OutputRelay {
 public:
  /// Throws Error if no pipe can be made.
  explicit OutputRelay(int to);
  /// Passes on what the pipe holds, and closes it. A reader that takes nothing for a second loses the rest.
  ~OutputRelay();
  OutputRelay(const OutputRelay&) = delete;
  OutputRelay& operator=(const OutputRelay&) = delete;

  /// The end of the pipe for children.
  int input() const { return pipe_.writing.get(); }
  /// Waits until what the pipe holds has been passed on or dropped. Returns false after `seconds`, or once
  /// the descriptor `interruption` is readable.
  bool flush(double seconds, int interruption = -1) const;
  /// Returns the seconds for which the pipe has not been empty: the reader of the descriptor is slow.
  double seconds_behind() const;
  /// The errno of the first write that failed; 0: none. EPIPE: the reader is gone.
  int error() const { return error_; }

 private:
  void relay();
  /// Passes on at most `most_bytes`. Returns true once the pipe is empty.
  bool pass_on(size_t most_bytes);
  /// Returns false if a write fails, or if the reader takes nothing although the relay ends.
  bool deliver(std::string_view bytes);

  int to_;
  bool has_reader_ = true;
  std::atomic<bool> is_busy_ = false;  ///< the thread may have bytes that it has not passed on
  std::atomic<Clock::time_point> busy_since_ = {};
  std::atomic<int> error_ = 0;
  Descriptor end_;  ///< becomes readable when the relay has to end
  Pipe pipe_;
  std::thread thread_;
};

}  // namespace lockstep
