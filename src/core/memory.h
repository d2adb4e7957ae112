// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/stream.h"

namespace lockstep {

/// Labels the allocations that this thread makes during its life; scopes nest, the innermost counts.
/// `label` must outlive the program's use of it (a string literal).
class MemoryScope {
 public:
  explicit MemoryScope(const char* label);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  const char* outer_;
};

/// Memory on the stream's device, aligned to 64 bytes, contents undefined. On the CPU freed blocks are kept
/// for the next request of their size class. Out of memory: Error with the table of scopes.
std::shared_ptr<std::byte> allocate(int64_t bytes, const Stream& stream);

/// Bytes in use under one label, now and at most, over all threads of the process.
struct MemoryUse {
  std::string label;
  int64_t current_bytes = 0;
  int64_t peak_bytes = 0;
};

/// One row a label in ASCII order, then "total".
std::vector<MemoryUse> memory_table();

}  // namespace lockstep
