// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/stream.h"

namespace lockstep {

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

}  // namespace lockstep
