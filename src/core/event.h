// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/stream.h"

namespace lockstep {

/// A point in a GPU's queue that others can wait for. On a CPU, where kernels run at once, it has always
/// passed.
class Event {
 public:
  /// Marks the end of what is in the queue now; a later call moves the mark.
  void record(const Stream& stream);
  /// Work enqueued on `stream` from now on waits for the mark. Nothing if nothing was recorded.
  void hold(const Stream& stream) const;
  /// True once everything before the mark is done.
  bool has_passed() const;
  /// Returns when the mark has passed.
  void synchronize() const;

 private:
  std::shared_ptr<void> handle_;
};

/// Returns when all that is in the queue is done.
void synchronize(const Stream& stream);

}  // namespace lockstep
