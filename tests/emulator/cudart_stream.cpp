// SPDX-License-Identifier: Apache-2.0

// The CUDA runtime's functions for streams, events and graphs. Work runs immediately on the thread that
// enqueues it. In a captured stream it is only recorded.

#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>
#include <utility>

#include "emulator/cudart.h"
#include "emulator/emulator.h"
#include "lockstep/core/error.h"

namespace emulator {
namespace {

/// The state that the threads of a process share.
struct Shared {
  std::mutex mutex;  ///< guards the streams and the captures
  std::set<cudaStream_t> streams;
  std::vector<std::weak_ptr<Capture>> captures;
  std::mutex list_mutex;
  std::vector<Listed> list;
};

/// Never destroyed, because a thread in the background may call the runtime while the process ends.
Shared& shared() {
  static auto* instance = new Shared;
  return *instance;
}

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
thread_local std::vector<std::weak_ptr<Capture>> captures_of_thread;

std::atomic<bool> listing{false};

CUstream_st& default_stream() {
  static CUstream_st stream;
  return stream;
}

/// Invalidates the captures that forbid an unsafe call. Returns true if there is one.
bool invalidate(std::vector<std::weak_ptr<Capture>>& captures, bool only_global) {
  bool any = false;
  std::erase_if(captures, [](const auto& capture) { return capture.expired(); });
  for (const auto& weak : captures) {
    const auto capture = weak.lock();
    if (!capture || capture->mode == cudaStreamCaptureModeRelaxed) continue;
    if (only_global && capture->mode != cudaStreamCaptureModeGlobal) continue;
    capture->is_valid = false;
    any = true;
  }
  return any;
}

/// Returns the order in which a graph's nodes run. Each next node is one whose dependencies have run. With
/// seed 0 it is the one with the highest priority, and among equal priorities the first recorded. Otherwise
/// it is random.
std::vector<size_t> replay_order(const Recorded& recorded, uint32_t seed) {
  std::vector<size_t> order, ready, missing(recorded.nodes.size());
  std::vector<std::vector<size_t>> followers(recorded.nodes.size());
  for (size_t i = 0; i < recorded.nodes.size(); ++i) {
    missing[i] = recorded.nodes[i].after.size();
    for (const size_t before : recorded.nodes[i].after) followers[before].push_back(i);
    if (missing[i] == 0) ready.push_back(i);
  }
  std::minstd_rand random(seed);
  while (!ready.empty()) {
    const auto first = std::ranges::min_element(ready, {}, [&](size_t node) {
      return std::pair{recorded.nodes[node].priority, node};
    });
    const auto chosen =
        seed == 0 ? first : ready.begin() + static_cast<std::ptrdiff_t>(random() % ready.size());
    const size_t node = *chosen;
    ready.erase(chosen);
    order.push_back(node);
    for (const size_t follower : followers[node])
      if (--missing[follower] == 0) ready.push_back(follower);
  }
  return order;
}

/// Returns true if all nodes come before the stream's next work, so that every forked stream is joined again.
bool is_joined(const Capture& capture, const std::set<size_t>& last) {
  std::vector<bool> reached(capture.recorded.nodes.size());
  std::vector<size_t> left(last.begin(), last.end());
  while (!left.empty()) {
    const size_t node = left.back();
    left.pop_back();
    if (reached[node]) continue;
    reached[node] = true;
    const auto& before = capture.recorded.nodes[node].after;
    left.insert(left.end(), before.begin(), before.end());
  }
  return std::find(reached.begin(), reached.end(), false) == reached.end();
}

void leave_capture(CUstream_st& stream) {
  stream.capture = nullptr;
  stream.last.clear();
}

}  // namespace

Listing::Listing() { lockstep::expect(!listing.exchange(true), "emulator: a second Listing begins"); }

Listing::~Listing() {
  take();
  listing = false;
}

std::vector<Listed> Listing::take() {
  const std::lock_guard lock(shared().list_mutex);
  return std::exchange(shared().list, {});
}

bool is_listing() { return listing; }

uint64_t& listing_tag() {
  thread_local uint64_t tag = 0;
  return tag;
}

void list_or_run(const Listed& what, const std::function<void()>& work) {
  if (!listing || what.kind == Listed::Kind::graph) return work();
  const std::lock_guard lock(shared().list_mutex);
  shared().list.push_back(what);
}

CUstream_st* find_stream(cudaStream_t handle, cudaError_t& result) {
  result = lost_device();
  if (result != cudaSuccess) return nullptr;
  if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread)
    return &default_stream();
  const std::lock_guard lock(shared().mutex);
  if (shared().streams.contains(handle)) return handle;
  result = cudaErrorInvalidResourceHandle;
  return nullptr;
}

cudaError_t refuse_while_captured(cudaStream_t handle) {
  cudaError_t result = cudaSuccess;
  const CUstream_st* stream = find_stream(handle, result);
  if (stream == nullptr || !stream->capture) return result;
  stream->capture->is_valid = false;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t refuse_unsafe_call() {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  const std::lock_guard lock(shared().mutex);
  bool refused = invalidate(captures_of_thread, false);
  if (thread_mode == cudaStreamCaptureModeGlobal) refused = invalidate(shared().captures, true) || refused;
  return refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t enqueue(cudaStream_t handle, std::function<void()> work, Listed what) {
  cudaError_t result = cudaSuccess;
  CUstream_st* stream = find_stream(handle, result);
  if (stream == nullptr) return result;
  what.tag = listing_tag();
  if (!stream->capture) {
    list_or_run(what, work);
    return cudaSuccess;
  }
  if (!stream->capture->is_valid) return cudaErrorStreamCaptureInvalidated;
  auto& nodes = stream->capture->recorded.nodes;
  what.is_in_graph = true;
  nodes.push_back({std::move(work), stream->last, stream->priority, what});
  stream->last = {nodes.size() - 1};
  return cudaSuccess;
}

}  // namespace emulator

using emulator::find_stream;
using emulator::remember;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  if (emulator::device_count() == 0) return remember(cudaErrorNoDevice);
  *stream = new CUstream_st{.priority = priority, .capture = nullptr, .last = {}};
  const std::lock_guard lock(emulator::shared().mutex);
  emulator::shared().streams.insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(emulator::shared().mutex);
  if (emulator::shared().streams.erase(stream) == 0) return remember(cudaErrorInvalidResourceHandle);
  if (stream->capture) stream->capture->streams.erase(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return remember(emulator::refuse_while_captured(stream));
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return remember(emulator::refuse_while_captured(stream)); }
cudaError_t cudaDeviceSynchronize() { return remember(emulator::refuse_unsafe_call()); }

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  cudaError_t result = cudaSuccess;
  CUstream_st* stream = find_stream(handle, result);
  if (stream == nullptr) return remember(result);
  if (stream == &emulator::default_stream()) return remember(cudaErrorStreamCaptureUnsupported);
  if (stream->capture) return remember(cudaErrorInvalidValue);
  stream->capture = std::make_shared<emulator::Capture>();
  stream->capture->origin = handle;
  stream->capture->mode = mode;
  stream->capture->streams.insert(handle);
  const std::lock_guard lock(emulator::shared().mutex);
  emulator::captures_of_thread.push_back(stream->capture);
  emulator::shared().captures.push_back(stream->capture);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  *graph = nullptr;
  cudaError_t result = cudaSuccess;
  CUstream_st* stream = find_stream(handle, result);
  if (stream == nullptr) return remember(result);
  const auto capture = stream->capture;
  if (!capture || capture->origin != handle) return remember(cudaErrorStreamCaptureUnmatched);
  const bool is_joined = emulator::is_joined(*capture, stream->last);
  for (CUstream_st* member : capture->streams) emulator::leave_capture(*member);
  // Events that were recorded in the capture keep it alive, but it no longer forbids any call.
  capture->mode = cudaStreamCaptureModeRelaxed;
  capture->origin = nullptr;
  if (!capture->is_valid) return remember(cudaErrorStreamCaptureInvalidated);
  if (!is_joined) return remember(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st{std::move(capture->recorded)};
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, emulator::thread_mode);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  *executable = new CUgraphExec_st{graph->recorded};
  // Without the flag all nodes have the priority of the stream that the graph is launched in.
  if ((flags & cudaGraphInstantiateFlagUseNodePriority) == 0)
    for (auto& node : (*executable)->recorded.nodes) node.priority = 0;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const uint32_t seed = emulator::current_schedule();
  const auto replay = [executable, seed] {
    for (const size_t number : emulator::replay_order(executable->recorded, seed)) {
      const auto& node = executable->recorded.nodes[number];
      emulator::list_or_run(node.what, node.work);
    }
  };
  return remember(emulator::enqueue(stream, replay, {.kind = emulator::Listed::Kind::graph}));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (emulator::device_count() == 0) return remember(cudaErrorNoDevice);
  *event = new CUevent_st{};
  (*event)->has_time = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  cudaError_t result = cudaSuccess;
  const CUstream_st* stream = find_stream(handle, result);
  if (stream == nullptr) return remember(result);
  event->time = std::chrono::steady_clock::now();
  event->is_recorded = true;
  event->capture = stream->capture;
  event->last = stream->last;
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  cudaError_t result = cudaSuccess;
  CUstream_st* stream = find_stream(handle, result);
  if (stream == nullptr) return remember(result);
  if (!event->is_recorded) return cudaSuccess;
  const bool is_captured = event->capture && event->capture->origin != nullptr;
  if (!is_captured && !stream->capture) return cudaSuccess;
  if (!is_captured || (stream->capture && stream->capture != event->capture)) {
    if (stream->capture) stream->capture->is_valid = false;
    return remember(cudaErrorStreamCaptureIsolation);
  }
  stream->capture = event->capture;
  stream->capture->streams.insert(stream);
  stream->last.insert(event->last.begin(), event->last.end());
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->capture && event->capture->origin != nullptr) return remember(cudaErrorCapturedEvent);
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) { return cudaEventQuery(event); }

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  if (!from->is_recorded || !to->is_recorded || !from->has_time || !to->has_time)
    return remember(cudaErrorInvalidResourceHandle);
  *milliseconds = std::chrono::duration<float, std::milli>(to->time - from->time).count();
  return cudaSuccess;
}

}  // extern "C"
