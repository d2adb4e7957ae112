// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "core/stream.h"

namespace lockstep {

/// GPU work that was recorded once and is started as a whole. Memory that it allocates while it is recorded
/// stays its own, at fixed addresses; whatever changes from launch to launch it must read from device memory.
class Graph {
 public:
  /// Records what `body` enqueues on the GPU stream, and on streams that wait for its events; nothing runs.
  /// Throws Error if the stream is not a GPU's, or if body does what cannot be recorded (waits on the host,
  /// say).
  Graph(const Stream& stream, const std::function<void()>& body);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Enqueues all of it.
  void launch() const;

 private:
  struct Recording;
  std::unique_ptr<Recording> recording_;
};

/// True while this thread records a graph.
bool is_recording_graph();

}  // namespace lockstep
