// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <functional>
#include <set>
#include <string>
#include <vector>

// The interface of the emulated GPU, which runs CUDA threads as fibers. The tests and the emulated cuBLASLt
// and NCCL use it.

namespace emulator {

/// Sets the order of threads and blocks in later launches. With seed 0 they run in order, otherwise in a
/// random order that the seed determines. Then graphs also replay in a random order that respects their
/// dependencies.
void set_schedule(uint32_t seed);

/// One piece of work as a GPU receives it, which becomes one node of a graph.
struct Listed {
  enum class Kind : uint8_t { kernel, product, copy, fill, graph, other };
  Kind kind = Kind::other;
  const void* kernel = nullptr;  ///< address of the kernel, to look up its name
  uint64_t blocks = 0;           ///< of a kernel
  double bytes = 0;              ///< of device memory read and written; 0 for a kernel
  double flops = 0;              ///< operations of a product
  uint64_t tag = 0;              ///< listing_tag() when it was enqueued
  bool is_in_graph = false;
};

/// Enqueues work in the stream. It runs immediately. In a captured stream it runs at each launch of the
/// graph. Returns CUDA's error if the stream does not exist or its capture is invalid.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work, Listed what = {});

/// A scope in which device work of all threads is listed instead of executed. Device memory is reserved but
/// neither poisoned nor written, so it costs nothing. Copies to the host give zeros.
class Listing {
 public:
  Listing();
  ~Listing();
  Listing(const Listing&) = delete;
  Listing& operator=(const Listing&) = delete;

  /// Returns the work listed since the last call, in the order of the queues.
  static std::vector<Listed> take();
};
bool is_listing();
/// Returns this thread's tag, which later work carries. It identifies the call that made the work.
uint64_t& listing_tag();
/// Returns the name of the function that contains an address of this program, or the address as text.
std::string function_name(const void* address);

/// Returns true if [address, address + bytes) is inside one live allocation of device or pinned memory.
bool is_device_memory(const void* address, size_t bytes);

/// Restricts the valid range of an allocation to its first `bytes`. A pool calls it after it has rounded up.
void set_used_bytes(const void* allocation, size_t bytes);

/// The GPU that cudaGetDeviceProperties describes, and whose tensor cores are emulated. It has few
/// multiprocessors, so that tests also have grids larger than the device. Its compute capability is
/// LOCKSTEP_EMULATED_COMPUTE_CAPABILITY, 9.0 by default.
struct Model {
  int major = 9, minor = 0;
  int multiprocessors = 4;
};
Model& model();

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
  /// Returns the arguments as a GPU's driver gets them. Only recorded launches need it.
  std::vector<std::byte> (*pack)(const void* arguments) = nullptr;
};

/// Throws Error if a GPU would refuse the launch.
void check(const Launch& launch);

/// Runs all blocks, one after another. Throws Error if the kernel makes a mistake. The message begins with
/// "emulator: " and the kind of mistake (race, deadlock, out of bounds, ...).
void run(const Launch& launch);

}  // namespace emulator
