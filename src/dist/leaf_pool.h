// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/core/stream.h"
#include "lockstep/movement/bucket_plan.h"
#include "lockstep/movement/sharding.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

/// A pool of buffers in which a backward leaves gradients, unit by unit, until their owners have read them.
/// The first backward makes a buffer for each unit in progress at a time. Every rank and every later backward
/// assigns units to the same buffers, so ranks can read each other's gradients in place.
class LeafPool {
 public:
  using Allocate = std::function<std::shared_ptr<Storage>(int64_t count)>;

  /// `allocate` makes memory that other ranks can reach. Gradients are written on the space's stream.
  LeafPool(const ParameterLayout& layout, const BucketPlan& buckets, Allocate allocate);

  /// Returns true until every unit has a buffer.
  bool is_settling() const { return unsettled_ > 0; }
  /// Returns a buffer for the gradients of a unit that has none. Elements between parameters are zero. Throws
  /// Error if the unit's buffer is in use.
  const Tensor& acquire(int unit);
  bool is_free(int unit) const;
  /// Returns the unit's gradients, [units[unit].size()], or an empty tensor if it has none.
  const Tensor& gradients(int unit) const { return places_[static_cast<size_t>(unit)].gradients; }
  /// Releases a unit's gradients. Work that is queued on `reader` by now may still read them.
  void release(int unit, const Stream& reader);
  /// Releases the gradients of all units. The gradients' stream must have waited for all readers.
  void release_all();

 private:
  struct Buffer {
    std::shared_ptr<Storage> memory;
    bool is_used = false;
    bool was_read = false;  ///< a queue reads it until the event `read`
    Event read;
  };
  struct UnitGradients {
    int64_t elements = 0;
    std::vector<Range> gaps = {};  ///< ranges without a parameter, relative to the start of the unit
    int buffer = -1;               ///< -1 until it is settled
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
