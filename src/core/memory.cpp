// SPDX-License-Identifier: Apache-2.0
#include "core/memory.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "core/error.h"

namespace lockstep {
namespace {

thread_local const char* current_label = "other";

/// Blocks by size class with the bookkeeping of scopes. Never destroyed: tensors may outlive static order.
class CpuMemory {
 public:
  std::byte* take(int64_t block_bytes, const char* label) {
    const std::lock_guard lock(mutex_);
    auto& blocks = free_[block_bytes];
    std::byte* block = nullptr;
    if (blocks.empty()) {
      block = make(block_bytes);
      if (block == nullptr) {
        release_free();
        block = make(block_bytes);
      }
    } else {
      block = blocks.back();
      blocks.pop_back();
    }
    if (block != nullptr) count(label, block_bytes);
    return block;
  }

  void give(std::byte* block, int64_t block_bytes, const char* label) {
    const std::lock_guard lock(mutex_);
    count(label, -block_bytes);
    free_[block_bytes].push_back(block);
  }

  std::vector<MemoryUse> table() {
    const std::lock_guard lock(mutex_);
    std::vector<MemoryUse> rows;
    for (const auto& [label, use] : uses_) rows.push_back(use);
    rows.push_back(total_);
    return rows;
  }

 private:
  static std::byte* make(int64_t block_bytes) {
    return static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>(block_bytes)));
  }

  /// Gives back what is kept for later, where memory is short now.
  void release_free() {
    for (auto& [block_bytes, blocks] : free_)
      for (std::byte* block : std::exchange(blocks, {})) std::free(block);
  }

  void count(const char* label, int64_t bytes) {
    MemoryUse& use = uses_[label];
    use.label = label;
    for (MemoryUse* row : {&use, &total_}) {
      row->current_bytes += bytes;
      row->peak_bytes = std::max(row->peak_bytes, row->current_bytes);
    }
  }

  std::mutex mutex_;
  std::map<int64_t, std::vector<std::byte*>> free_;
  std::map<std::string, MemoryUse> uses_;
  MemoryUse total_{.label = "total"};
};

CpuMemory& cpu_memory() {
  static CpuMemory* memory = new CpuMemory;
  return *memory;
}

/// Sizes are rounded up to one of eight steps per power of two, so that blocks are met again.
int64_t size_class(int64_t bytes) {
  if (bytes <= 1024) return ((bytes < 1 ? 1 : bytes) + 63) / 64 * 64;
  const int64_t step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes))) / 8;
  return (bytes + step - 1) / step * step;
}

}  // namespace

MemoryScope::MemoryScope(const char* label) : outer_(current_label) { current_label = label; }
MemoryScope::~MemoryScope() { current_label = outer_; }

std::shared_ptr<std::byte> allocate(int64_t bytes, const Stream& stream) {
  expect(device_of(stream) == Device::cpu, "this build allocates on the CPU only");
  expect(bytes >= 0, "an allocation of ", bytes, " bytes");
  const char* label = current_label;
  const int64_t block_bytes = size_class(bytes);
  std::byte* block = cpu_memory().take(block_bytes, label);
  if (block == nullptr) {
    std::string table;
    for (const MemoryUse& use : memory_table())
      table += concat("\n  ", use.label, ": ", use.current_bytes >> 20, " MiB now, ", use.peak_bytes >> 20,
                      " MiB at most");
    throw Error(concat("out of memory: ", bytes >> 20, " MiB for ", label,
                       "; lower train.batch_size, raise train.accumulate, or shorten data.block_size",
                       table));
  }
  return {block, [=](std::byte* freed) { cpu_memory().give(freed, block_bytes, label); }};
}

std::vector<MemoryUse> memory_table() { return cpu_memory().table(); }

}  // namespace lockstep
