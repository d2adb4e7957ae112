// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// One block of equal size per rank, each readable and writable by all ranks of the host.
struct SharedMemory {
  std::vector<std::byte*> of_rank;  ///< where each rank's block is mapped here
  int64_t bytes = 0;                ///< of each block, zeroed at first
  std::vector<std::shared_ptr<std::byte>> owners;
  bool is_mapped = false;  ///< pages of other processes, which count as this one's once it has read them

  /// Lets go of pages of another rank's that this one has read: they are mapped again when it reads them
  /// again.
  void release(const std::byte* from, int64_t size) const;
};

/// A named block of POSIX shared memory, `create`d by one process and opened by others; null with the reason
/// in `problem` if it cannot be had (for example a small /dev/shm). Unmapped when the last owner goes.
std::shared_ptr<std::byte> map_shared(const std::string& name, int64_t bytes, bool create,
                                      std::string& problem);
void unlink_shared(const std::string& name);

/// Meeting point of the ranks in shared memory: a counter per rank, on a cache line of its own.
class SharedBarrier {
 public:
  /// `memory` needs 64 bytes per rank, zeroed. `share_cores`: ranks outnumber cores, so a rank that waits
  /// lets another run at once instead of spinning for a while first.
  SharedBarrier(std::shared_ptr<SharedMemory> memory, int rank, bool share_cores = false);

  /// Returns when every rank has come as often as this one. Throws Error naming the ranks that were missing
  /// when `timeout_seconds` had passed, or as soon as `cancelled` is set. In a dry run nobody else comes.
  void wait(double timeout_seconds, const std::atomic<bool>& cancelled);

 private:
  std::shared_ptr<SharedMemory> memory_;
  int rank_;
  int spins_;
  uint32_t rounds_ = 0;
};

}  // namespace lockstep
