// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace lockstep::detail {

/// A fixed set of threads that share numbered chunks of work. The caller decides from shapes alone which
/// values are added together. So results depend neither on the number of threads nor on which thread ran a
/// chunk. If the system does not schedule a thread, the others take its chunks.
class ThreadPool {
 public:
  /// threads >= 1, the calling thread included.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  /// Runs body(chunk) for every chunk in [0, chunks) and returns when all are done. The body must not throw,
  /// and must not call the pool again. One caller at a time.
  template <class Body>
  void run(int64_t chunks, Body&& body) {
    if (chunks <= 1 || workers_.empty()) {
      for (int64_t chunk = 0; chunk < chunks; ++chunk) body(chunk);
      return;
    }
    using Function = std::remove_reference_t<Body>;
    share({[](void* function, int64_t chunk) { (*static_cast<Function*>(function))(chunk); }, &body, chunks});
  }

 private:
  struct Job {
    void (*call)(void*, int64_t) = nullptr;
    void* body = nullptr;
    int64_t chunks = 0;
  };

  void share(Job job);
  void work();
  void run_chunks();
  bool claim(uint32_t generation, int64_t& chunk);

  Job job_;
  /// The job's number (high half) and its unclaimed chunks (low half). One word holds both, so that a late
  /// thread cannot claim a chunk of another job.
  std::atomic<uint64_t> unclaimed_{0};
  std::atomic<uint32_t> generation_{0};
  std::atomic<int> unfinished_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace lockstep::detail
