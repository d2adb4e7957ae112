// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/event.h"
#include "dist/bucket_plan.h"
#include "tensor/storage.h"

namespace lockstep {

/// Where a backward leaves gradients, unit by unit, until they have been handed over: as many buffers as
/// units are under way at a time. Which unit lies in which buffer is settled by the first backward, and is
/// the same on every rank and in every later one, so that ranks can read each other's in place.
class LeafPool {
 public:
  using Allocate = std::function<std::shared_ptr<Storage>(int64_t count)>;

  /// `allocate` makes memory that others reach. Gradients are written on the space's stream.
  LeafPool(const ParameterSpace& space, const BucketPlan& buckets, Allocate allocate);

  /// True until every unit has a buffer.
  bool is_settling() const { return unsettled_ > 0; }
  /// A buffer for a unit's gradients, of which none is there; zero where no parameter lies. Throws Error if
  /// its buffer is in use.
  const Tensor& acquire(int unit);
  bool is_free(int unit) const;
  /// The unit's gradients, [units[unit].size()]; empty if none are there.
  const Tensor& gradients(int unit) const { return places_[static_cast<size_t>(unit)].gradients; }
  /// What is queued on `reader` by now is the last that reads a unit's gradients.
  void release(int unit, const Stream& reader);
  /// All are free, and the gradients' stream has waited for whoever has read them.
  void release_all();

 private:
  struct Buffer {
    std::shared_ptr<Storage> memory;
    bool is_used = false;
    bool was_read = false;  ///< in a queue, up to the event
    Event read;
  };
  struct UnitGradients {
    int64_t elements = 0;
    std::vector<Range> gaps = {};  ///< where no parameter lies, from the unit's beginning
    int buffer = -1;               ///< once it is settled
    Tensor gradients = {};
  };
  int settle(int64_t elements);

  Allocate allocate_;
  Stream stream_;
  std::vector<UnitGradients> places_;  ///< [unit]
  std::vector<Buffer> buffers_;
  size_t unsettled_;
};

}  // namespace lockstep
