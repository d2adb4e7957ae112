// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "lockstep/comm/communicator.h"
#include "lockstep/core/stream.h"

namespace lockstep {

/// A watchdog for collectives in a GPU's queue, which no host thread waits for. Each collective is in the
/// flight record. One that runs longer than the deadline of `host`, or an error in the background, ends the
/// transport. The reason is reported first (report_and_end_soon). Threads that wait for the GPU are then
/// released, and check() throws the reason.
class Watchdog {
 public:
  /// Functions that the watchdog calls from its own thread. It calls background_error() before it queries any
  /// event, so that the transport can select the thread's GPU. Otherwise CUDA would initialise the first GPU.
  struct Transport {
    std::function<std::string()> background_error;  ///< empty without an error
    std::function<void()> break_off;
  };

  Watchdog(Communicator& host, Transport transport);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Runs `enqueue`, which queues a collective on the stream. Its time begins when the GPU reaches it, or
  /// when `has_begun` returns true. A graph's launches are watched instead of its recorded collectives.
  void watch(const char* name, int64_t bytes, const Stream& stream, const std::function<void()>& enqueue,
             std::function<bool()> has_begun = {});

  /// Throws Error with the failure, if there is one.
  void check() const;

 private:
  struct Work;

  std::unique_ptr<Work> idle_work();
  void serve();
  /// Returns the failure to report, or nothing. Notes which collectives have ended.
  std::string look();
  std::string problem_of(Work& work, const std::string& background_error);
  void fail(const std::string& message);

  Communicator& host_;
  Transport transport_;
  mutable std::mutex mutex_;
  std::condition_variable stopped_;
  std::deque<std::unique_ptr<Work>> running_;
  std::deque<std::unique_ptr<Work>> idle_;  ///< kept to reuse their events
  std::string failure_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lockstep
