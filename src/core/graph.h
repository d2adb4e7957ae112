// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "lockstep/core/stream.h"

namespace lockstep {

/// GPU work that is recorded once and launched as a whole. It owns the memory that it allocates, at fixed
/// addresses. It must read values that change from launch to launch from device memory.
class Graph {
 public:
  /// Records the work that `body` enqueues on the GPU stream and on streams that wait for its events. Nothing
  /// runs. Throws Error if the stream is not a GPU's or `body` cannot be recorded, for example because it
  /// waits on the host.
  Graph(const Stream& stream, const std::function<void()>& body);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Enqueues the whole graph.
  void launch() const;
  /// Returns whether memory from a GraphMemoryScope is still in use. A launch would overwrite it.
  bool has_lent_memory() const;

 private:
  struct Recording;
  std::unique_ptr<Recording> recording_;
};

/// Returns true while this thread records a graph.
bool is_recording_graph();

}  // namespace lockstep
