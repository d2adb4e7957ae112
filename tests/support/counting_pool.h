// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>

#include "lockstep/core/memory_pool.h"

namespace lockstep {

/// A memory pool that records its largest size.
class CountingPool final : public MemoryPool {
 public:
  ~CountingPool() override { release_cached(); }
  int64_t most() const { return most_; }

 protected:
  std::byte* make(int64_t bytes) override {
    most_ = std::max(most_, now_ += bytes);
    return static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64)));
  }
  void destroy(std::byte* block, int64_t bytes) override {
    now_ -= bytes;
    std::free(block);
  }
  std::string device() const override { return "memory"; }

 private:
  int64_t now_ = 0, most_ = 0;
};

}  // namespace lockstep
