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

#include "core/memory.h"

namespace lockstep {

/// Where freed blocks of one device may be used again: in the queue they were freed in, and only by the graph
/// that they belong to, if any.
struct ReuseScope {
  const void* queue = nullptr;
  uint64_t graph = 0;
  // NOLINTNEXTLINE(modernize-use-nullptr): there is no pointer in a defaulted comparison
  auto operator<=>(const ReuseScope&) const = default;
};

/// Blocks of one device by place and size class, with the bookkeeping of scopes. A device's own pool is never
/// destroyed: tensors may outlive static order.
class MemoryPool {
 public:
  virtual ~MemoryPool() = default;

  /// A block of at least `bytes` under the label of this thread's scope. Throws Error when there is none.
  std::shared_ptr<std::byte> take(int64_t bytes, ReuseScope place);
  /// Gives freed blocks back to the device; those of a graph stay, because it writes to them.
  void release_cached();
  /// The graph is gone: its blocks serve everybody.
  void release_graph(uint64_t graph);
  std::vector<MemoryUse> table();

 protected:
  /// Null when the device has no more.
  virtual std::byte* make(int64_t bytes) = 0;
  virtual void destroy(std::byte* block, int64_t bytes) = 0;
  /// Somebody has the block now, for so many bytes of it.
  virtual void use(std::byte* /*block*/, int64_t /*bytes*/, const char* /*label*/) {}
  /// What an error says about the device.
  virtual std::string device() const = 0;

 private:
  std::byte* find(int64_t bytes, const ReuseScope& place, const char* label);
  void give(std::byte* block, int64_t block_bytes, ReuseScope place, const char* label);
  void release_free();
  void count(const char* label, int64_t bytes);

  std::mutex mutex_;
  std::map<std::tuple<ReuseScope, int64_t>, std::vector<std::byte*>> free_;
  std::set<uint64_t> dead_graphs_;
  std::map<std::string, MemoryUse> uses_;
  MemoryUse total_{.label = "total"};
};

/// A pool of the CPU's memory of its own, which outlives its blocks.
std::unique_ptr<MemoryPool> make_cpu_pool();

/// Throws in a build without CUDA.
MemoryPool& gpu_pool(int device);

/// Where what this thread allocates on the stream now may be used again: apart, while it records a graph.
ReuseScope place_of(const Stream& stream);

}  // namespace lockstep
