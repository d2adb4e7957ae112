// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "comm/communicator.h"
#include "parameters/flat_buffer.h"

namespace lockstep {

/// What has to go from rank to rank so that each gets the part of a flat space that it wants: a value, of one
/// rank. All ranks make it from the same arguments.
struct TransferPlan {
  /// Elements on their way.
  struct Copy {
    int peer = 0;
    int64_t from = 0;  ///< where they begin in the sender's buffer
    int64_t to = 0;    ///< and in the receiver's
    int64_t count = 0;
  };

  /// Rank r sends what it owns, from a buffer placed as from[r], to each rank that wants it, into a buffer
  /// placed as to[rank].
  TransferPlan(const Ownership& owned, std::span<const Placement> from, const Ownership& wanted,
               std::span<const Placement> to, int rank);
  /// Each rank's part of one buffer that all have whole, brought to all ranks, or to `root` alone.
  static TransferPlan in_place(const Ownership& owned, int64_t elements, int rank, int root = everybody);
  static constexpr int everybody = -1;

  std::vector<Message> send_messages(const std::byte* from, int64_t element_bytes) const;
  std::vector<Message> receive_messages(std::byte* to, int64_t element_bytes) const;
  /// The same sends, of what has stayed: from where it lies in this rank's other buffer, once it is there.
  /// Throws Error where something is sent that does not stay.
  std::vector<Message> send_messages_from_there(std::byte* to, int64_t element_bytes) const;

  std::vector<Copy> sends, receives;  ///< from and to other ranks, in the order of their peers
  std::vector<Copy> stays;            ///< from this rank's buffer to its other one
};

}  // namespace lockstep
