// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "comm/communicator.h"
#include "core/stream.h"

namespace lockstep {

/// Watches collectives in the queue of a GPU, for which no thread of the host waits. Each is in the flight
/// record; one that runs longer than the deadline of `host`, or an error in the background, ends the
/// transport, so that whoever waits for the GPU is released and learns the reason from check(). A rank that
/// does not come to an end then is ended with its job after ten seconds.
class Watchdog {
 public:
  /// What the watchdog asks and ends, both from its own thread. It asks before it looks at any event, so that
  /// the transport can choose the thread's GPU: else CUDA would set up the first one.
  struct Transport {
    std::function<std::string()> background_error;  ///< empty while all is well
    std::function<void()> break_off;
  };

  Watchdog(Communicator& host, Transport transport);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Runs `enqueue`, which queues a collective on the stream. Its time counts from when the GPU comes to it,
  /// or from when `has_begun` says so. What is recorded in a graph is not watched: its launches are.
  void watch(const char* name, int64_t bytes, const Stream& stream, const std::function<void()>& enqueue,
             std::function<bool()> has_begun = {});

  /// Throws Error with what went wrong.
  void check() const;

 private:
  struct Work;

  void serve();
  void retire_finished();
  std::string problem(const std::string& background_error);
  void fail(const std::string& message, std::unique_lock<std::mutex>& lock);

  Communicator& host_;
  Transport transport_;
  mutable std::mutex mutex_;
  std::condition_variable stopped_;
  std::deque<std::unique_ptr<Work>> running_;
  std::deque<std::unique_ptr<Work>> idle_;  ///< whose events are used again
  std::string failure_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lockstep
