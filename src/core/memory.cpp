// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/memory.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <utility>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/graph.h"
#include "lockstep/core/memory_pool.h"
#include "lockstep/core/stream.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

thread_local const char* current_label = "other";
thread_local int graph_memory_scopes = 0;

/// Returns false if a test or a memory checker asked for blocks of exact size that are never reused.
bool keeps_blocks() {
  static const bool keeps = environment("LOCKSTEP_MEMORY_POOL") != "off";
  return keeps;
}

class CpuPool final : public MemoryPool {
  std::byte* make(int64_t bytes) override {
    if (!is_mapped(bytes))
      return static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64)));
    void* block = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block == MAP_FAILED ? nullptr : static_cast<std::byte*>(block);
  }
  void destroy(std::byte* block, int64_t bytes) override {
    if (is_mapped(bytes))
      ::munmap(block, static_cast<size_t>(bytes));
    else
      std::free(block);
  }
  std::string device() const override { return "memory"; }

 private:
  /// Large blocks are mapped here, so that the memory of a process depends only on its requests. The C
  /// library's own threshold changes with earlier frees, and it may keep freed blocks that it did not map.
  static bool is_mapped(int64_t bytes) { return keeps_blocks() && bytes >= int64_t{1} << 18; }
};

/// Rounds sizes up to one of eight steps per power of two, so that freed blocks fit later requests. Steps are
/// at most 2 MiB, the granularity of a GPU's memory: an eighth of a large block would be a loss.
int64_t size_class(int64_t bytes) {
  if (!keeps_blocks()) return std::max<int64_t>(bytes, 1);
  if (bytes <= 1024) return ((bytes < 1 ? 1 : bytes) + 63) / 64 * 64;
  const int64_t eighth = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes))) / 8;
  const int64_t step = std::min(eighth, int64_t{2} << 20);
  return (bytes + step - 1) / step * step;
}

MemoryPool& pool_of(const Stream& stream) {
  if (mode_of(stream).memory != nullptr) return *mode_of(stream).memory;
  static MemoryPool* cpu_pool = new CpuPool;
  return device_of(stream) == Device::cpu ? *cpu_pool : gpu_pool(gpu_of(stream));
}

}  // namespace

MemoryScope::MemoryScope(const char* label) : outer_(current_label) { current_label = label; }
MemoryScope::~MemoryScope() { current_label = outer_; }
GraphMemoryScope::GraphMemoryScope() { ++graph_memory_scopes; }
GraphMemoryScope::~GraphMemoryScope() { --graph_memory_scopes; }

std::shared_ptr<std::byte> allocate(int64_t bytes, const Stream& stream) {
  return pool_of(stream).take(bytes, place_of(stream));
}

void copy_bytes(void* to, const Stream& to_stream, const void* from, const Stream& from_stream,
                int64_t bytes) {
  if (bytes == 0 || mode_of(to_stream).is_dry || mode_of(from_stream).is_dry) return;
  const bool to_host = device_of(to_stream) == Device::cpu;
  const Stream& stream = to_host ? from_stream : to_stream;
  copy_bytes_in_background(to, from, bytes, stream);
  if (to_host || device_of(from_stream) == Device::cpu) synchronize(stream);
}

void release_cached_memory(const Stream& stream) { pool_of(stream).release_cached(); }

std::vector<MemoryUse> memory_table(const Stream& stream) { return pool_of(stream).table(); }

void spare_address_space() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) ::mallopt(M_ARENA_MAX, 1);
}

std::shared_ptr<std::byte> MemoryPool::take(int64_t bytes, ReuseScope place) {
  expect(bytes >= 0, "an allocation of ", bytes, " bytes");
  const char* label = current_label;
  const Block block = find(bytes, place, label);
  if (block.data == nullptr) {
    std::string rows;
    for (const MemoryUse& use : table())
      rows += concat("\n  ", use.label, ": ", use.current_bytes >> 20, " MiB now, ", use.peak_bytes >> 20,
                     " MiB at most");
    throw Error(concat("out of ", device(), ": ", bytes >> 20, " MiB for ", label, "; ",
                       advice_about(out_of_memory, "compute smaller batches, or recompute activations"),
                       rows));
  }
  return {block.data, [=, this](std::byte*) { give(block, label); }};
}

MemoryPool::Block MemoryPool::find(int64_t bytes, const ReuseScope& place, const char* label) {
  Block block{.bytes = size_class(bytes), .place = place};
  const std::lock_guard lock(mutex_);
  auto& blocks = free_[{place, block.bytes}];
  if (blocks.empty()) {
    block = make_or_lend(block.bytes, place);
  } else {
    block.data = blocks.back();
    blocks.pop_back();
  }
  if (block.data == nullptr) return block;
  count(label, block.bytes);
  use(block.data, bytes, label);
  return block;
}

MemoryPool::Block MemoryPool::make_or_lend(int64_t block_bytes, const ReuseScope& place) {
  if (graph_memory_scopes > 0 && !is_recording_graph()) {
    const Block lent = lend(block_bytes, place);
    if (lent.data != nullptr) return lent;
  }
  Block block{.data = make(block_bytes), .bytes = block_bytes, .place = place};
  // Freeing waits for the device, which cannot be recorded.
  if (block.data == nullptr && !is_recording_graph()) {
    release_free();
    block.data = make(block_bytes);
  }
  return block;
}

MemoryPool::Block MemoryPool::lend(int64_t least_bytes, const ReuseScope& place) {
  Block smallest;
  for (auto& [key, blocks] : free_) {
    const auto& [of, bytes] = key;
    const bool is_possible =
        of.queue == place.queue && of.graph != 0 && bytes >= least_bytes && !blocks.empty();
    if (!is_possible || (smallest.data != nullptr && bytes >= smallest.bytes)) continue;
    smallest = {.data = blocks.back(), .bytes = bytes, .place = of, .is_lent = true};
  }
  if (smallest.data == nullptr) return smallest;
  free_[{smallest.place, smallest.bytes}].pop_back();
  ++lent_[smallest.place.graph];
  return smallest;
}

void MemoryPool::give(Block block, const char* label) {
  const std::lock_guard lock(mutex_);
  count(label, -block.bytes);
  if (block.is_lent) --lent_[block.place.graph];
  if (dead_graphs_.contains(block.place.graph)) block.place.graph = 0;
  if (!keeps_blocks() && block.place.graph == 0 && !is_recording_graph())
    return destroy(block.data, block.bytes);
  free_[{block.place, block.bytes}].push_back(block.data);
}

bool MemoryPool::has_lent(uint64_t graph) {
  const std::lock_guard lock(mutex_);
  const auto found = lent_.find(graph);
  return found != lent_.end() && found->second > 0;
}

void MemoryPool::release_graph(uint64_t graph) {
  const std::lock_guard lock(mutex_);
  dead_graphs_.insert(graph);
  for (const auto& [key, blocks] : free_) {
    auto [place, block_bytes] = key;
    if (place.graph != graph) continue;
    place.graph = 0;
    auto& common = free_[{place, block_bytes}];
    common.insert(common.end(), blocks.begin(), blocks.end());
  }
  std::erase_if(free_, [&](const auto& entry) { return std::get<ReuseScope>(entry.first).graph == graph; });
}

void MemoryPool::release_cached() {
  const std::lock_guard lock(mutex_);
  release_free();
}

void MemoryPool::release_free() {
  for (auto& [key, blocks] : free_)
    if (std::get<ReuseScope>(key).graph == 0)
      for (std::byte* block : std::exchange(blocks, {})) destroy(block, std::get<int64_t>(key));
}

void MemoryPool::count(const char* label, int64_t bytes) {
  MemoryUse& use = uses_[label];
  use.label = label;
  for (MemoryUse* row : {&use, &total_}) {
    row->current_bytes += bytes;
    row->peak_bytes = std::max(row->peak_bytes, row->current_bytes);
  }
}

std::vector<MemoryUse> MemoryPool::table() {
  const std::lock_guard lock(mutex_);
  std::vector<MemoryUse> rows;
  for (const auto& [label, use] : uses_) rows.push_back(use);
  rows.push_back(total_);
  return rows;
}

}  // namespace lockstep
