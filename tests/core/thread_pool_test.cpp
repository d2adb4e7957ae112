// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/thread_pool.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "lockstep/core/stream.h"

namespace {

/// The number of cores of a simulated machine, or 0 for the real one. This process may use the last two.
std::atomic<size_t> pretended_cores{0};

}  // namespace

/// Replaces the C library's function. Like the kernel, it refuses a mask that is too small for the machine.
extern "C" int sched_getaffinity(pid_t process, size_t bytes, cpu_set_t* mask) noexcept {
  CPU_ZERO_S(bytes, mask);
  const size_t cores = pretended_cores;
  if (cores == 0) return ::syscall(SYS_sched_getaffinity, process, bytes, mask) < 0 ? -1 : 0;
  if (8 * bytes < cores) {
    errno = EINVAL;
    return -1;
  }
  CPU_SET_S(cores - 1, bytes, mask);
  CPU_SET_S(cores - 2, bytes, mask);
  return 0;
}

namespace lockstep {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 4));

TEST_P(ThreadPoolTest, EveryChunkRunsOnce) {
  detail::ThreadPool pool(GetParam());
  EXPECT_EQ(pool.size(), GetParam());
  for (const int64_t chunks : {0, 1, 2, 3, 4, 5, 63, 1000}) {
    std::vector<int> runs(static_cast<size_t>(chunks));
    pool.run(chunks, [&](int64_t chunk) { ++runs[static_cast<size_t>(chunk)]; });
    EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(chunks), 1));
  }
}

TEST_P(ThreadPoolTest, AThreadThatIsHeldUpHoldsNothingUp) {
  detail::ThreadPool pool(GetParam());
  if (pool.size() == 1) GTEST_SKIP() << "needs a second thread";
  std::atomic<int> others{0};
  pool.run(10, [&](int64_t chunk) {
    if (chunk > 0) {
      ++others;
    } else {
      while (others < 9) std::this_thread::yield();
    }
  });
  EXPECT_EQ(others, 9);
}

// Each job reads values that the job before it wrote on other threads. If a job starts early or ends late,
// the result is wrong.
TEST_P(ThreadPoolTest, ManySmallJobsFollowEachOther) {
  detail::ThreadPool pool(GetParam());
  constexpr int jobs = 1000;
  constexpr size_t width = 7;
  std::vector<int64_t> now(width, 1), next(width);
  for (int job = 0; job < jobs; ++job) {
    pool.run(width, [&](int64_t chunk) {
      const auto i = static_cast<size_t>(chunk);
      next[i] = (now[i] + 3 * now[(i + 1) % width]) % 1000003;
    });
    now.swap(next);
  }
  // All values start equal, so they stay equal: 4^jobs.
  int64_t expected = 1;
  for (int job = 0; job < jobs; ++job) expected = expected * 4 % 1000003;
  EXPECT_EQ(now, std::vector<int64_t>(width, expected));
}

TEST_P(ThreadPoolTest, PoolsEndWhileIdle) {
  for (int i = 0; i < 20; ++i) {
    const detail::ThreadPool unused(GetParam());
    detail::ThreadPool used(GetParam());
    std::atomic<int> runs = 0;
    used.run(2, [&](int64_t) { ++runs; });
    EXPECT_EQ(runs, 2);
  }
}

// The caller is done with its own chunk long before the other thread.
TEST_P(ThreadPoolTest, TheCallerWaitsForTheOthers) {
  if (GetParam() == 1) GTEST_SKIP() << "there is no other thread";
  detail::ThreadPool pool(GetParam());
  const auto caller = std::this_thread::get_id();
  std::atomic<int> started = 0;
  std::atomic<bool> finished = false;
  pool.run(2, [&](int64_t) {
    ++started;
    while (started < 2) std::this_thread::yield();
    if (std::this_thread::get_id() == caller) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    finished = true;
  });
  EXPECT_TRUE(finished);
}

TEST_P(ThreadPoolTest, SleepingThreadsWakeForTheNextJob) {
  detail::ThreadPool pool(GetParam());
  std::atomic<int> runs = 0;
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    // A chunk ends only after every thread has one, so all threads must wake.
    std::atomic<int> awake = 0;
    pool.run(pool.size(), [&](int64_t) {
      ++runs;
      ++awake;
      while (awake < pool.size()) std::this_thread::yield();
    });
  }
  EXPECT_EQ(runs, 3 * pool.size());
}

TEST_P(ThreadPoolTest, ChunksOfAStreamDependOnCountAndGrainAlone) {
  detail::ThreadPool pool(GetParam());
  std::vector<int64_t> begins(5, -1), ends(5, -1);
  CpuStream{&pool}.for_each_chunk(23, 5, [&](int64_t begin, int64_t end) {
    begins[static_cast<size_t>(begin / 5)] = begin;
    ends[static_cast<size_t>(begin / 5)] = end;
  });
  EXPECT_EQ(begins, (std::vector<int64_t>{0, 5, 10, 15, 20}));
  EXPECT_EQ(ends, (std::vector<int64_t>{5, 10, 15, 20, 23}));
}

TEST(ThreadPool, NeedsAThread) { EXPECT_THROW(detail::ThreadPool(0), Error); }

TEST(ThreadPool, AThreadsStreamHasThePoolItAskedFor) {
  const auto size = [] { return std::get<CpuStream>(current_stream()).pool->size(); };
  set_threads(3);
  const detail::ThreadPool* three = std::get<CpuStream>(current_stream()).pool;
  EXPECT_EQ(size(), 3);
  int elsewhere = 0;
  std::thread([&] { elsewhere = size(); }).join();
  EXPECT_EQ(elsewhere, 1);
  set_threads(1);
  EXPECT_EQ(size(), 1);
  set_threads(3);
  EXPECT_EQ(std::get<CpuStream>(current_stream()).pool, three);
  set_threads(1);
}

TEST(AvailableCores, AreThoseOfTheMaskHoweverLargeTheMachine) {
  EXPECT_GE(available_cores(), 1);
  for (const size_t cores : {size_t{4}, size_t{1024}, size_t{1025}, size_t{8192}}) {
    pretended_cores = cores;
    EXPECT_EQ(available_cores(), 2) << cores;
    EXPECT_EQ(allowed_cores().rfind('1'), cores - 1);
  }
  pretended_cores = 0;
}

}  // namespace
}  // namespace lockstep
