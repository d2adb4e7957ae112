// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/core/stream.h"

namespace lockstep {

/// The problem, in a Wording, that no memory is left.
inline constexpr const char* out_of_memory = "out of memory";

/// A scope that labels this thread's allocations. Scopes nest, and the innermost one counts. `label` must
/// outlive the program's use of it (a string literal).
class MemoryScope {
 public:
  explicit MemoryScope(const char* label);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  const char* outer_;
};

/// A scope in which this thread's allocations may be memory that recorded graphs of the same stream need only
/// while they run. It must be freed before the next launch (Graph::has_lent_memory).
class GraphMemoryScope {
 public:
  GraphMemoryScope();
  ~GraphMemoryScope();
  GraphMemoryScope(const GraphMemoryScope&) = delete;
  GraphMemoryScope& operator=(const GraphMemoryScope&) = delete;
};

/// Allocates memory on the stream's device, aligned to 64 bytes (256 on a GPU). Its contents are undefined.
/// Freed blocks are kept for the next request of their size class. On a GPU only the same stream reuses them,
/// even while its earlier work still runs: the queue keeps the uses in order.
/// LOCKSTEP_MEMORY_POOL=off gives every request a block of its own size, so that a memory checker sees its
/// end. Throws Error with the table of labels if memory runs out.
std::shared_ptr<std::byte> allocate(int64_t bytes, const Stream& stream);

/// Releases the kept blocks of freed tensors to the stream's device.
void release_cached_memory(const Stream& stream);

/// Makes threads share one heap if the address space is limited (ulimit -v): each own heap reserves 64 MiB.
void spare_address_space();

/// Allocates host memory that GPUs copy from and to in the background. Without CUDA it is plain memory.
std::shared_ptr<std::byte> allocate_pinned(int64_t bytes);

/// Copies between any two places. Host memory may be read and overwritten as soon as it returns.
void copy_bytes(void* to, const Stream& to_stream, const void* from, const Stream& from_stream,
                int64_t bytes);

/// Copies in the queue of a GPU's `stream`. Host memory must be pinned, and untouched until the copy has run.
void copy_bytes_in_background(void* to, const void* from, int64_t bytes, const Stream& stream);

/// Current and peak bytes in use under one label, over all threads of the process.
struct MemoryUse {
  std::string label;
  int64_t current_bytes = 0;
  int64_t peak_bytes = 0;
};

/// Returns the memory of the stream's device: one row per label in ASCII order, then "total".
std::vector<MemoryUse> memory_table(const Stream& stream = cpu_stream());

}  // namespace lockstep
