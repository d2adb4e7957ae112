// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <exception>

#include "lockstep/core/cuda_check.h"
#include "lockstep/core/graph.h"
#include "lockstep/core/memory_pool.h"
#include "lockstep/core/stream.h"

namespace lockstep {
namespace {

/// The number of the graph that this thread records; 0 if none. Its allocations are kept apart.
thread_local uint64_t recording = 0;

cudaEvent_t native_event(const std::shared_ptr<void>& handle) {
  return static_cast<cudaEvent_t>(handle.get());
}

}  // namespace

bool is_recording_graph() { return recording != 0; }

ReuseScope place_of(const Stream& stream) {
  const auto* cuda = std::get_if<CudaStream>(&stream);
  return cuda ? ReuseScope{.queue = cuda->handle, .graph = recording} : ReuseScope{};
}

struct Graph::Recording {
  CudaStream stream;
  uint64_t number = 0;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;

  ~Recording() {
    // Blocks may be reused only after all launches of this graph have finished.
    cudaStreamSynchronize(cuda::native(stream));
    if (executable) cudaGraphExecDestroy(executable);
    if (graph) cudaGraphDestroy(graph);
    gpu_pool(stream.device).release_graph(number);
  }
};

Graph::Graph(const Stream& stream, const std::function<void()>& body)
    : recording_(std::make_unique<Recording>()) {
  static std::atomic<uint64_t> graphs{0};
  const auto* cuda = std::get_if<CudaStream>(&stream);
  expect(cuda != nullptr, "only work on a GPU can be recorded as a graph");
  recording_->stream = *cuda;
  recording_->number = ++graphs;
  cuda::check(cudaStreamBeginCapture(cuda::native(*cuda), cudaStreamCaptureModeThreadLocal),
              "recording a graph");
  recording = recording_->number;
  std::exception_ptr failure;
  try {
    body();
  } catch (...) {
    failure = std::current_exception();
  }
  recording = 0;
  const cudaError_t result = cudaStreamEndCapture(cuda::native(*cuda), &recording_->graph);
  if (failure) {
    cudaGetLastError();
    std::rethrow_exception(failure);
  }
  cuda::check(result, "recording a graph");
  // Without this flag the whole graph would run with the priority of the launching stream.
  cuda::check(cudaGraphInstantiate(&recording_->executable, recording_->graph,
                                   cudaGraphInstantiateFlagUseNodePriority),
              "preparing a graph");
}

Graph::~Graph() = default;

void Graph::launch() const {
  cuda::check(cudaGraphLaunch(recording_->executable, cuda::native(recording_->stream)), "starting a graph");
}

bool Graph::has_lent_memory() const {
  return gpu_pool(recording_->stream.device).has_lent(recording_->number);
}

void Event::record(const Stream& stream) {
  const auto* cuda = std::get_if<CudaStream>(&stream);
  if (cuda == nullptr) return;
  if (handle_ == nullptr) {
    cudaEvent_t event = nullptr;
    cuda::check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    handle_ = {event, cudaEventDestroy};
  }
  cuda::check(cudaEventRecord(native_event(handle_), cuda::native(*cuda)), "recording an event");
}

void Event::hold(const Stream& stream) const {
  const auto* cuda = std::get_if<CudaStream>(&stream);
  if (cuda == nullptr || handle_ == nullptr) return;
  cuda::check(cudaStreamWaitEvent(cuda::native(*cuda), native_event(handle_), 0), "waiting for an event");
}

bool Event::has_passed() const {
  if (handle_ == nullptr) return true;
  const cudaError_t result = cudaEventQuery(native_event(handle_));
  if (result == cudaErrorNotReady) return false;
  cuda::check(result, "running kernels");
  return true;
}

void Event::synchronize() const {
  if (handle_) cuda::check(cudaEventSynchronize(native_event(handle_)), "running kernels");
}

void synchronize(const Stream& stream) {
  if (const auto* cuda = std::get_if<CudaStream>(&stream))
    cuda::check(cudaStreamSynchronize(cuda::native(*cuda)), "running kernels");
}

}  // namespace lockstep
