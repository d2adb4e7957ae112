// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/thread_pool.h"

#include "lockstep/core/error.h"

namespace lockstep::detail {
namespace {

// Kernels follow each other within microseconds, so a short spin usually catches the next one. Then the
// thread sleeps, because the core may belong to another rank.
constexpr int spins_before_sleep = 4000;

template <class Done>
bool spin_until(Done done) {
  for (int i = 0; i < spins_before_sleep; ++i) {
    if (done()) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  return false;
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  expect(threads >= 1, "a thread pool of ", threads, " threads");
  for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::share(Job job) {
  expect(job.chunks <= INT32_MAX, "a job of ", job.chunks, " chunks");
  job_ = job;
  unfinished_.store(static_cast<int>(job.chunks), std::memory_order_relaxed);
  const uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  unclaimed_.store((uint64_t{generation} << 32) | static_cast<uint64_t>(job.chunks),
                   std::memory_order_release);
  // Ordered with the check for sleepers in notify_all(): otherwise a sleeper could miss its job.
  generation_.store(generation, std::memory_order_seq_cst);
  generation_.notify_all();
  run_chunks();
  const auto all_done = [this] { return unfinished_.load(std::memory_order_acquire) == 0; };
  if (spin_until(all_done)) return;
  for (int left = unfinished_.load(std::memory_order_acquire); left != 0;
       left = unfinished_.load(std::memory_order_acquire))
    unfinished_.wait(left, std::memory_order_acquire);
}

void ThreadPool::work() {
  uint32_t seen = 0;
  for (;;) {
    const auto has_job = [&] { return generation_.load(std::memory_order_acquire) != seen; };
    if (!spin_until(has_job)) generation_.wait(seen, std::memory_order_acquire);
    seen = generation_.load(std::memory_order_acquire);
    if (stopping_.load()) return;
    run_chunks();
  }
}

bool ThreadPool::claim(uint32_t generation, int64_t& chunk) {
  uint64_t state = unclaimed_.load(std::memory_order_acquire);
  for (;;) {
    const auto left = static_cast<uint32_t>(state);
    if (state >> 32 != generation || left == 0) return false;
    if (!unclaimed_.compare_exchange_weak(state, state - 1, std::memory_order_acq_rel)) continue;
    // The job does not change until this chunk is finished.
    chunk = job_.chunks - left;
    return true;
  }
}

void ThreadPool::run_chunks() {
  const auto generation = static_cast<uint32_t>(unclaimed_.load(std::memory_order_acquire) >> 32);
  for (int64_t chunk = 0; claim(generation, chunk);) {
    job_.call(job_.body, chunk);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_all();
  }
}

}  // namespace lockstep::detail
