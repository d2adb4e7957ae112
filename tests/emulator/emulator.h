// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <functional>
#include <set>

// The interface of the emulated GPU, which runs CUDA threads as fibers. The tests and the emulated cuBLASLt
// and NCCL use it.

namespace emulator {

/// Sets the order of threads and blocks in later launches. With seed 0 they run in order, otherwise in a
/// random order that the seed determines. Then graphs also replay in a random order that respects their
/// dependencies.
void set_schedule(uint32_t seed);

/// Enqueues work in the stream. It runs immediately. In a captured stream it runs at each launch of the
/// graph. Returns CUDA's error if the stream does not exist or its capture is invalid.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);

/// Returns true if [address, address + bytes) is inside one live allocation of device or pinned memory.
bool is_device_memory(const void* address, size_t bytes);

/// Restricts the valid range of an allocation to its first `bytes`. A pool calls it after it has rounded up.
void set_used_bytes(const void* allocation, size_t bytes);

/// Optional features that the emulated cuBLASLt can refuse, for tests of the library's fallbacks.
struct CublasLtLimits {
  bool has_sums = true;             ///< supports the column sums BGRADA and BGRADB
  int unreadable = -1;              ///< algorithm attribute that cannot be read
  std::set<uint32_t> refused = {};  ///< algorithms that are suggested but fail their check
  uint64_t more_workspace = 0;      ///< additional workspace that the check of a split-k algorithm requires
};
CublasLtLimits& cublaslt_limits();

/// A launch of a kernel over a grid. `call` runs one thread and reads `arguments`.
struct Launch {
  dim3 blocks;
  dim3 threads;
  size_t shared_bytes = 0;
  const void* kernel = nullptr;  ///< address of the kernel, to look up its name
  void (*call)(const void* arguments) = nullptr;
  const void* arguments = nullptr;
  size_t argument_bytes = 0;
};

/// Throws Error if a GPU would refuse the launch.
void check(const Launch& launch);

/// Runs all blocks, one after another. Throws Error if the kernel makes a mistake. The message begins with
/// "emulator: " and the kind of mistake (race, deadlock, out of bounds, ...).
void run(const Launch& launch);

}  // namespace emulator
