// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "emulator/emulator.h"

// The structures that the handles of the CUDA runtime point to.

namespace emulator {

/// Work that was enqueued during a capture.
struct Recorded {
  struct Node {
    std::function<void()> work;
    std::set<size_t> after;  ///< nodes that must run before this one
    int priority = 0;        ///< priority of the stream; lower numbers run first
    Listed what = {};
  };
  std::vector<Node> nodes;
};

/// A capture in progress. A stream joins it by waiting for one of its events.
struct Capture {
  cudaStream_t origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::set<cudaStream_t> streams;
  Recorded recorded;
  bool is_valid = true;
};

/// Stores a result for cudaGetLastError and returns it.
cudaError_t remember(cudaError_t result);

/// The error of all calls once the GPU is lost, else cudaSuccess. LOCKSTEP_EMULATED_GPU_LOST_AFTER is the
/// number of kernels that run before that.
cudaError_t lost_device();
/// Counts a kernel. Returns false if the GPU is lost, and the kernel must not run.
bool count_kernel();

/// Returns the stream, or null with the reason in `result`.
CUstream_st* find_stream(cudaStream_t handle, cudaError_t& result);

/// Returns an error and invalidates the capture if the stream is captured. Calls that wait for a stream use
/// it.
cudaError_t refuse_while_captured(cudaStream_t handle);
/// Returns an error and invalidates the captures that forbid unsafe calls. An unsafe call is an allocation or
/// a copy that waits, on any stream.
cudaError_t refuse_unsafe_call();

/// Lists the work if a Listing exists, otherwise runs it. A graph is run in both cases, so its nodes are
/// listed.
void list_or_run(const Listed& what, const std::function<void()>& work);

int current_device();
int device_count();

/// Returns the seed for random replays. 0 replays in recorded order.
uint32_t current_schedule();

}  // namespace emulator

struct CUstream_st {
  int priority = 0;
  std::shared_ptr<emulator::Capture> capture;
  std::set<size_t> last;  ///< nodes of the capture that must run before the stream's next work
};

struct CUevent_st {
  std::chrono::steady_clock::time_point time;
  bool is_recorded = false;
  bool has_time = true;
  std::shared_ptr<emulator::Capture> capture;  ///< capture in which the event was recorded, or null
  std::set<size_t> last;
};

struct CUgraph_st {
  emulator::Recorded recorded;
};

struct CUgraphExec_st {
  emulator::Recorded recorded;
};
