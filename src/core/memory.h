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

/// Memory on the stream's device, aligned to 64 bytes (256 on a GPU), contents undefined. Freed blocks are
/// kept for the next request of their size class; on a GPU for the same stream, in whose order they may be
/// met again while earlier work still runs. With LOCKSTEP_MEMORY_POOL=off in the environment every request
/// has a block of its own size, so that a checker sees its end. Out of memory: Error with the table of
/// scopes.
std::shared_ptr<std::byte> allocate(int64_t bytes, const Stream& stream);

/// Gives back to the stream's device what freed tensors left for later.
void release_cached_memory(const Stream& stream);

/// Where the address space is limited (ulimit -v) threads share one heap from now on: each one's own would
/// reserve 64 MiB, whatever it needs.
void spare_address_space();

/// Host memory that GPUs copy from and to in the background; plain memory in a build without CUDA.
std::shared_ptr<std::byte> allocate_pinned(int64_t bytes);

/// Copies between any two places. Host memory may be read, and overwritten, as soon as it returns.
void copy_bytes(void* to, const Stream& to_stream, const void* from, const Stream& from_stream,
                int64_t bytes);

/// The same in the queue of `stream` (a GPU's), where host memory is pinned and left alone until the copy has
/// run.
void copy_bytes_in_background(void* to, const void* from, int64_t bytes, const Stream& stream);

/// Bytes in use under one label, now and at most, over all threads of the process.
struct MemoryUse {
  std::string label;
  int64_t current_bytes = 0;
  int64_t peak_bytes = 0;
};

/// One row a label in ASCII order, then "total", of the memory of the stream's device.
std::vector<MemoryUse> memory_table(const Stream& stream = cpu_stream());

}  // namespace lockstep
