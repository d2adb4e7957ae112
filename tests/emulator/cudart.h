// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <functional>
#include <memory>
#include <set>
#include <vector>

// What the handles of the CUDA runtime point to.

namespace emulator {

/// Work that was enqueued while streams were captured.
struct Recorded {
  struct Node {
    std::function<void()> work;
    std::set<size_t> after;  ///< nodes that come first
    int priority = 0;        ///< the stream's; lower goes first
  };
  std::vector<Node> nodes;
};

/// A capture that has begun and not ended. Streams join it when they wait for one of its events.
struct Capture {
  cudaStream_t origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::set<cudaStream_t> streams;
  Recorded recorded;
  bool is_valid = true;
};

/// Keeps a result for cudaGetLastError and returns it.
cudaError_t remember(cudaError_t result);

/// The stream, or null with the reason in `result`.
CUstream_st* find_stream(cudaStream_t handle, cudaError_t& result);

/// An error, and the end of the capture's validity, if the stream is captured: for calls that wait for it.
cudaError_t refuse_while_captured(cudaStream_t handle);
/// The same for calls that a capture of this thread forbids whatever the stream: allocations, and copies that
/// wait.
cudaError_t refuse_unsafe_call();

int current_device();
int device_count();
/// The order of random replays; 0 in the order of recording.
uint32_t current_schedule();

}  // namespace emulator

struct CUstream_st {
  int priority = 0;
  std::shared_ptr<emulator::Capture> capture;
  std::set<size_t> last;  ///< nodes of the capture that the stream's next work comes after
};

struct CUevent_st {
  std::chrono::steady_clock::time_point time;
  bool is_recorded = false;
  bool has_time = true;
  std::shared_ptr<emulator::Capture> capture;  ///< the one it was recorded in, if any
  std::set<size_t> last;
};

struct CUgraph_st {
  emulator::Recorded recorded;
};

struct CUgraphExec_st {
  emulator::Recorded recorded;
};
