// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <functional>
#include <set>

// A GPU made of fibers: what the other stand-ins (cuBLASLt, NCCL) and the tests use of it.

namespace emulator {

/// How threads and blocks of the launches from now on take turns: 0 in order, else a random order that the
/// seed fixes. A graph is replayed in a random order that its dependencies allow.
void set_schedule(uint32_t seed);

/// Puts work into the stream: it runs at once, or, while the stream is captured, at each launch of the graph.
/// Returns what CUDA would: an error if the stream does not exist or its capture is invalid.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);

/// True if [address, address + bytes) lies within one live allocation of device or pinned memory.
bool is_device_memory(const void* address, size_t bytes);

/// Tells the bounds checker that only the first `bytes` of an allocation are in use, where a pool rounded up.
void set_used_bytes(const void* allocation, size_t bytes);

/// What the stand-in for cuBLASLt does not do, although it may: for tests of what then happens.
struct CublasLtLimits {
  bool has_sums = true;             ///< of columns, as BGRADA and BGRADB
  int unreadable = -1;              ///< the attribute of algorithms that cannot be read
  std::set<uint32_t> refused = {};  ///< algorithms that no check lets through, although they are suggested
  uint64_t more_workspace = 0;      ///< that the check of a split sum asks for
};
CublasLtLimits& cublaslt_limits();

/// One kernel over a grid. `call` runs one thread's share; `arguments` is what it reads.
struct Launch {
  dim3 blocks;
  dim3 threads;
  size_t shared_bytes = 0;
  const void* kernel = nullptr;  ///< its address, for its name
  void (*call)(const void* arguments) = nullptr;
  const void* arguments = nullptr;
  size_t argument_bytes = 0;
};

/// Throws Error if a GPU would refuse such a launch.
void check(const Launch& launch);

/// Runs all blocks, one after another. Throws Error whose text begins with "emulator: " and the kind (race,
/// deadlock, out of bounds, ...) when the kernel does what it must not.
void run(const Launch& launch);

}  // namespace emulator
