// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <variant>

#include "core/thread_pool.h"

namespace lockstep {

/// Where memory lives and kernels run.
enum class Device { cpu, cuda };

inline const char* name(Device device) { return device == Device::cpu ? "cpu" : "cuda"; }

class MemoryPool;

/// What streams of every device say besides where their work runs.
struct StreamMode {
  MemoryPool* memory = nullptr;  ///< where new tensors come from, if not from the device's pool
  bool is_dry = false;           ///< kernels check their operands and do not run: see DryRun
};

/// Kernels on the CPU run at once, shared out over a pool.
struct CpuStream {
  ThreadPool* pool = nullptr;
  StreamMode mode = {};

  /// Runs body(begin, end) over [0, count) in chunks of `grain` items (the last may be shorter).
  /// The chunks depend on count and grain alone.
  template <class Body>
  void for_each_chunk(int64_t count, int64_t grain, Body&& body) const {
    grain = std::max<int64_t>(grain, 1);
    const int64_t chunks = (count + grain - 1) / grain;
    pool->run(chunks, [&](int64_t chunk) { body(chunk * grain, std::min(count, (chunk + 1) * grain)); });
  }
};

/// An ordered queue on a GPU (a cudaStream_t, kept opaque so that no CUDA header is reachable from here).
struct CudaStream {
  void* handle = nullptr;
  int device = 0;
  StreamMode mode = {};
};

#if defined(LOCKSTEP_CUDA)
using Stream = std::variant<CpuStream, CudaStream>;
#else
using Stream = std::variant<CpuStream>;
#endif

inline Device device_of(const Stream& stream) { return stream.index() == 0 ? Device::cpu : Device::cuda; }

inline const StreamMode& mode_of(const Stream& stream) {
  return std::visit([](const auto& on) -> const StreamMode& { return on.mode; }, stream);
}

/// The number of the GPU that the stream belongs to; -1 for the CPU.
inline int gpu_of([[maybe_unused]] const Stream& stream) {
#if defined(LOCKSTEP_CUDA)
  if (const auto* cuda = std::get_if<CudaStream>(&stream)) return cuda->device;
#endif
  return -1;
}

/// The stream that new tensors of this thread are created on: cpu_stream() until another is set.
const Stream& current_stream();
void set_current_stream(const Stream& stream);

/// This thread's stream on the CPU. The first use makes a pool of one thread.
const Stream& cpu_stream();

/// While it lives, this thread's streams, the current one and that on the CPU, are in this mode.
class StreamModeScope {
 public:
  explicit StreamModeScope(StreamMode mode) : StreamModeScope(mode, mode) {}
  /// That of the current stream, and, where that is a GPU's, of the one on the CPU.
  StreamModeScope(StreamMode mode, StreamMode on_cpu);
  ~StreamModeScope();
  StreamModeScope(const StreamModeScope&) = delete;
  StreamModeScope& operator=(const StreamModeScope&) = delete;

 private:
  Stream on_cpu_, current_;  ///< before
};

/// Gives this thread a pool of its own with that many threads, for all tensors it creates on the CPU from now
/// on. The pool lives until the thread ends.
void set_threads(int threads);

}  // namespace lockstep
