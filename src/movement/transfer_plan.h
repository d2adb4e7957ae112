// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/parameters/parameter_layout.h"

namespace lockstep {

namespace detail {

/// The copies that give each rank the part of a flat space that it needs, as seen by one rank. A plain value.
/// All ranks make it from the same arguments.
struct TransferPlan {
  /// Consecutive elements that are sent, received or copied.
  struct Copy {
    int peer = 0;
    int64_t from = 0;  ///< start offset in the sender's buffer
    int64_t to = 0;    ///< start offset in the receiver's buffer
    int64_t count = 0;
  };

  /// Makes the plan in which rank r sends its owned ranges to each rank that wants them. A sender's buffer is
  /// placed as from[sender], a receiver's as to[receiver].
  TransferPlan(const Ownership& owned, std::span<const Placement> from, const Ownership& wanted,
               std::span<const Placement> to, int rank);
  /// Returns the plan for one buffer that all ranks have whole. It sends each rank's owned ranges to all.
  static TransferPlan in_place(const Ownership& owned, int64_t elements, int rank);

  std::vector<SentMessage> send_messages(const std::byte* from, int64_t element_bytes) const;
  std::vector<ReceivedMessage> receive_messages(std::byte* to, int64_t element_bytes) const;
  /// Returns the sends as messages from this rank's other buffer `to`, for use after the elements that stay
  /// are there. All ranks' other buffers have the same layout.
  std::vector<SentMessage> send_messages_from_there(const std::byte* to, int64_t element_bytes) const;
  /// Returns the messages of the whole transfer, in the rounds if there are any. The elements that stay must
  /// be in `to`.
  std::vector<MessageRound> message_rounds(const std::byte* from, std::byte* to, int64_t element_bytes) const;

  std::vector<Copy> sends, receives;  ///< to and from other ranks, in the order of their peers
  std::vector<Copy> stays;  ///< from this rank's buffer to its other buffer; `from` equals `to` in place

  /// A round of a gather in which ranks pass on what they have received. After k rounds a rank has the
  /// elements of 2^k ranks. Both offsets of a piece are those in the receiver's buffer, equal on all ranks.
  struct Round {
    std::vector<Copy> sends, receives;
  };
  /// The same transfer in rounds, if more than `most_direct` ranks gather the same elements. Their number of
  /// messages grows with the logarithm of the ranks, and the bytes are the same (Bruck et al. 1997). Fewer
  /// ranks send directly: neighbours often share a host, and passing on crosses between hosts more often.
  std::vector<Round> rounds;
  static constexpr size_t most_direct = 32;

 private:
  void make_rounds(const std::vector<int>& members, int rank);
};

}  // namespace detail

using detail::TransferPlan;

}  // namespace lockstep
