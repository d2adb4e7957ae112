// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

namespace detail {

/// One block of equal size per rank, each readable and writable by all ranks of the host.
struct SharedMemory {
  std::vector<std::byte*> of_rank;  ///< the address of each rank's block in this process
  int64_t bytes = 0;                ///< size of each block, which is zeroed at first
  std::vector<std::shared_ptr<std::byte>> owners;
  bool is_mapped = false;  ///< blocks of other processes are mapped: their pages count here once read

  /// Unmaps pages of another rank that this one has read. Reading them again maps them again.
  void release(const std::byte* from, int64_t size) const;
};

}  // namespace detail

using detail::SharedMemory;

/// Maps a named block of POSIX shared memory, which one process makes (`create`) and others open. The last
/// owner unmaps it. Returns null with the reason in `problem` if that fails: /dev/shm may be small.
std::shared_ptr<std::byte> map_shared(const std::string& name, int64_t bytes, bool create,
                                      std::string& problem);
void unlink_shared(const std::string& name);

/// A meeting point of ranks in shared memory: one counter per rank, on a cache line of its own.
class SharedBarrier {
 public:
  /// `memory` needs 64 zeroed bytes per rank. `share_cores` means that ranks outnumber cores: a waiting rank
  /// yields at once instead of spinning first.
  SharedBarrier(std::shared_ptr<SharedMemory> memory, int rank, bool share_cores = false);

  /// Waits until every rank has called it as often as this one. After `timeout_seconds`, throws Error with
  /// the missing ranks. Throws Error as soon as `cancelled` is set. Returns at once in a dry run.
  void wait(double timeout_seconds, const std::atomic<bool>& cancelled);

 private:
  std::shared_ptr<SharedMemory> memory_;
  int rank_;
  int spins_;
  uint32_t rounds_ = 0;
};

}  // namespace lockstep
