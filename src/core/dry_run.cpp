// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/dry_run.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/core/memory_pool.h"

namespace lockstep {

/// A pool of addresses that are never read, in a part of the address space that no process has.
class DryRun::Pool : public MemoryPool {
 public:
  const DryMemory& peak() const { return peak_; }

 protected:
  std::byte* make(int64_t bytes) override {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): nobody follows it
    auto* block = reinterpret_cast<std::byte*>(std::exchange(next_, next_ + (bytes + 4095) / 4096 * 4096));
    held_.mapped_bytes += bytes;
    peak_.mapped_bytes = std::max(peak_.mapped_bytes, held_.mapped_bytes);
    blocks_[block];
    return block;
  }

  void destroy(std::byte* block, int64_t bytes) override {
    held_.mapped_bytes -= bytes;
    for (const auto& [label, used] : blocks_.at(block).parts) {
      held_.used_bytes -= used;
      held_.used_by_label.at(label) -= used;
    }
    blocks_.erase(block);
  }

  void use(std::byte* block, int64_t bytes, const char* label) override {
    Block& used = blocks_.at(block);
    if (bytes <= used.bytes) return;
    const int64_t more = bytes - std::exchange(used.bytes, bytes);
    used.parts.emplace_back(label, more);
    held_.used_bytes += more;
    held_.used_by_label[label] += more;
    if (held_.used_bytes <= peak_.used_bytes) return;
    peak_.used_bytes = held_.used_bytes;
    peak_.used_by_label = held_.used_by_label;
  }

  std::string device() const override { return "addresses"; }

 private:
  struct Block {
    int64_t bytes = 0;  ///< in use, from the beginning of the block
    std::vector<std::pair<const char*, int64_t>> parts;
  };

  // The upper half of the address space belongs to the kernel.
  uintptr_t next_ = uintptr_t{1} << 56;
  std::map<std::byte*, Block> blocks_;
  DryMemory held_, peak_;
};

DryRun::DryRun()
    : pool_(std::make_unique<Pool>()),
      host_pool_(std::make_unique<Pool>()),
      scope_({.memory = pool_.get(), .is_dry = true}, {.memory = host_pool_.get(), .is_dry = true}) {}

DryRun::~DryRun() = default;

const DryMemory& DryRun::peak() const { return pool_->peak(); }

const DryMemory& DryRun::host_peak() const { return host_pool_->peak(); }

std::vector<MemoryUse> DryRun::table() const { return pool_->table(); }

}  // namespace lockstep
