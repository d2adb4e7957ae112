// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/core/memory.h"

namespace lockstep {

/// The queue in which a freed block may be reused. A block of a graph is reused by that graph only.
struct ReuseScope {
  const void* queue = nullptr;
  uint64_t graph = 0;
  // NOLINTNEXTLINE(modernize-use-nullptr): there is no pointer in a defaulted comparison
  auto operator<=>(const ReuseScope&) const = default;
};

namespace detail {

/// A pool of one device's blocks, by reuse scope and size class. It counts the bytes of each label. A
/// device's own pool is never destroyed, because tensors may outlive static objects.
class MemoryPool {
 public:
  virtual ~MemoryPool() = default;

  /// Returns a block of at least `bytes` under this thread's label. Throws Error if the device has none.
  std::shared_ptr<std::byte> take(int64_t bytes, ReuseScope place);
  /// Returns freed blocks to the device. Blocks of a graph stay, because the graph writes to them.
  void release_cached();
  /// Makes the blocks of a destroyed graph available to all requests.
  void release_graph(uint64_t graph);
  /// Returns whether a block of the graph is in use outside of it.
  bool has_lent(uint64_t graph);
  std::vector<MemoryUse> table();

 protected:
  /// Allocates a block; null when the device has no more memory.
  virtual std::byte* make(int64_t bytes) = 0;
  virtual void destroy(std::byte* block, int64_t bytes) = 0;
  /// Records that the first `bytes` of the block are in use under the label.
  virtual void use(std::byte* /*block*/, int64_t /*bytes*/, const char* /*label*/) {}
  /// Describes the device in error messages.
  virtual std::string device() const = 0;

 private:
  /// A block and where it belongs once it is free.
  struct Block {
    std::byte* data = nullptr;
    int64_t bytes = 0;
    ReuseScope place = {};
    bool is_lent = false;  ///< by the graph of `place`
  };
  Block find(int64_t bytes, const ReuseScope& place, const char* label);
  Block make_or_lend(int64_t block_bytes, const ReuseScope& place);
  Block lend(int64_t least_bytes, const ReuseScope& place);
  void give(Block block, const char* label);
  void release_free();
  void count(const char* label, int64_t bytes);

  std::mutex mutex_;
  std::map<std::tuple<ReuseScope, int64_t>, std::vector<std::byte*>> free_;
  std::set<uint64_t> dead_graphs_;
  std::map<uint64_t, int> lent_;  ///< number of lent blocks by graph
  std::map<std::string, MemoryUse> uses_;
  MemoryUse total_{.label = "total"};
};

}  // namespace detail

using detail::MemoryPool;
/// Returns the pool of a GPU. Throws Error in a build without CUDA.
MemoryPool& gpu_pool(int device);

/// Returns the reuse scope of this thread's next allocations on the stream; a recorded graph has its own.
ReuseScope place_of(const Stream& stream);

}  // namespace lockstep
