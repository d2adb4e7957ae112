// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <variant>

#include "lockstep/core/thread_pool.h"

namespace lockstep {

/// The kind of device that holds memory and runs kernels.
enum class Device { cpu, cuda };

inline const char* name(Device device) { return device == Device::cpu ? "cpu" : "cuda"; }

namespace detail {
class MemoryPool;
}

/// Settings that streams of every device have.
struct StreamMode {
  detail::MemoryPool* memory = nullptr;  ///< pool for new tensors; null: the device's own
  bool is_dry = false;                   ///< kernels check their operands and do not run: see DryRun
};

/// A stream on the CPU. Kernels run at once, split over a thread pool.
struct CpuStream {
  detail::ThreadPool* pool = nullptr;
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

/// Returns the number of the stream's GPU; -1 for the CPU.
inline int gpu_of([[maybe_unused]] const Stream& stream) {
#if defined(LOCKSTEP_CUDA)
  if (const auto* cuda = std::get_if<CudaStream>(&stream)) return cuda->device;
#endif
  return -1;
}

/// A point in a GPU's queue that can be waited for. On a CPU it has always passed: kernels run at once.
class Event {
 public:
  /// Marks the current end of the queue. A later call moves the mark.
  void record(const Stream& stream);
  /// Makes later work on `stream` wait for the mark. Does nothing if nothing was recorded.
  void hold(const Stream& stream) const;
  /// Returns true once all work before the mark is done.
  bool has_passed() const;
  /// Waits until the mark has passed.
  void synchronize() const;

 private:
  std::shared_ptr<void> handle_;
};

/// Waits until all work in the queue is done.
void synchronize(const Stream& stream);

/// Returns the stream on which this thread creates new tensors: cpu_stream() until another is set.
const Stream& current_stream();
void set_current_stream(const Stream& stream);

/// Returns this thread's stream on the CPU. The first use makes a pool of one thread.
const Stream& cpu_stream();

/// A scope in which this thread's current stream and its CPU stream are in the given mode.
class StreamModeScope {
 public:
  explicit StreamModeScope(StreamMode mode) : StreamModeScope(mode, mode) {}
  /// Sets `mode` for the current stream. If that is a GPU's, the CPU stream gets `on_cpu`.
  StreamModeScope(StreamMode mode, StreamMode on_cpu);
  ~StreamModeScope();
  StreamModeScope(const StreamModeScope&) = delete;
  StreamModeScope& operator=(const StreamModeScope&) = delete;

 private:
  Stream on_cpu_, current_;  ///< before the scope
};

/// Gives this thread a pool of `threads` threads for its later tensors on the CPU, until the thread ends.
void set_threads(int threads);

}  // namespace lockstep
