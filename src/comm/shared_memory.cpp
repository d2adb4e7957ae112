// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/shared_memory.h"

#include <cstring>
#include <fcntl.h>
#include <optional>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"
#include "lockstep/core/stream.h"

namespace lockstep {

std::shared_ptr<std::byte> map_shared(const std::string& name, int64_t bytes, bool create,
                                      std::string& problem) {
  const int file = ::shm_open(name.c_str(), create ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
  if (file < 0) {
    problem = concat("shm_open ", name, ": ", std::strerror(errno));
    return nullptr;
  }
  // Reserving the pages now turns a full /dev/shm into an error here instead of a bus error later.
  const int full = create ? ::posix_fallocate(file, 0, bytes) : 0;
  void* memory =
      full ? MAP_FAILED
           : ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const int mapping_error = errno;
  ::close(file);
  if (memory == MAP_FAILED) {
    problem = concat(bytes >> 20, " MiB of shared memory: ", std::strerror(full ? full : mapping_error));
    if (create) unlink_shared(name);
    return nullptr;
  }
  return {static_cast<std::byte*>(memory),
          [bytes](std::byte* block) { ::munmap(block, static_cast<size_t>(bytes)); }};
}

void SharedMemory::release(const std::byte* from, int64_t size) const {
  if (!is_mapped) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(from) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(from + size) + page - 1) / page * page;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): pages have numbers
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void unlink_shared(const std::string& name) { ::shm_unlink(name.c_str()); }

SharedBarrier::SharedBarrier(std::shared_ptr<SharedMemory> memory, int rank, bool share_cores)
    : memory_(std::move(memory)), rank_(rank), spins_(share_cores ? 0 : 2000) {}

void SharedBarrier::wait(double timeout_seconds, const std::atomic<bool>& cancelled) {
  if (mode_of(cpu_stream()).is_dry) return;  // a dry run has no memory for counters
  const auto counter = [&](size_t rank) {
    return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(memory_->of_rank[rank]));
  };
  // Counters wrap around; a peer may already be one round ahead.
  const auto has_arrived = [&](size_t rank) {
    return static_cast<int32_t>(counter(rank).load(std::memory_order_acquire) - rounds_) >= 0;
  };
  ++rounds_;
  counter(static_cast<size_t>(rank_)).store(rounds_, std::memory_order_release);
  std::optional<Clock::time_point> begin;  // set once the spins are used up
  for (size_t rank = 0; rank < memory_->of_rank.size(); ++rank) {
    for (int64_t tries = 0; !has_arrived(rank); ++tries) {
      if (tries < spins_) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
        continue;
      }
      if (!begin) begin = Clock::now();
      ::sched_yield();
      if (tries % 256 != 0) continue;
      expect(!cancelled.load(), "this rank is going down");
      if (seconds_since(*begin) < timeout_seconds) continue;
      std::string missing;
      for (size_t other = 0; other < memory_->of_rank.size(); ++other)
        if (!has_arrived(other)) missing += concat(missing.empty() ? "" : ", ", other);
      throw Error(concat("waited ", timeout_seconds, " s; rank ", missing, " did not arrive"));
    }
  }
}

}  // namespace lockstep
