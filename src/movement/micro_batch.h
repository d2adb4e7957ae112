// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace lockstep {

/// A part of a replica's batch, for one forward and one backward.
struct MicroBatch {
  int replica = 0;
  int index = 0;          ///< below `accumulate`; micro-batches are added from left to right
  bool is_empty = false;  ///< does not count; it runs so that this rank takes part in collective operations
  bool operator==(const MicroBatch&) const = default;
};

}  // namespace lockstep
