// SPDX-License-Identifier: Apache-2.0
#include "lockstep/movement/transfer_plan.h"

#include <algorithm>

namespace lockstep {
namespace {

/// Returns the intersections of the ranges of two lists, each in order.
std::vector<Range> intersections(const std::vector<Range>& a, const std::vector<Range>& b) {
  std::vector<Range> both;
  for (size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    if (const Range common = intersection(a[i], b[k]); common.size() > 0) both.push_back(common);
    a[i].end < b[k].end ? ++i : ++k;
  }
  return both;
}

template <class Byte>
std::vector<Message<Byte>> messages_of(const std::vector<TransferPlan::Copy>& pieces, Byte* memory,
                                       int64_t TransferPlan::Copy::*offset, int64_t element_bytes) {
  std::vector<Message<Byte>> messages;
  for (const TransferPlan::Copy& piece : pieces)
    messages.push_back({piece.peer, memory + piece.*offset * element_bytes, piece.count * element_bytes});
  return messages;
}

}  // namespace

TransferPlan::TransferPlan(const Ownership& owned, std::span<const Placement> from, const Ownership& wanted,
                           std::span<const Placement> to, int rank) {
  const auto mine = static_cast<size_t>(rank);
  const auto piece = [&](int peer, size_t sender, size_t receiver, Range range) {
    return Copy{peer, from[sender].offset_of(range), to[receiver].offset_of(range), range.size()};
  };
  for (int peer = 0; peer < static_cast<int>(owned.size()); ++peer) {
    const auto other = static_cast<size_t>(peer);
    if (peer == rank) {
      for (const Range& range : intersections(owned[mine], wanted[mine]))
        stays.push_back(piece(rank, mine, mine, range));
      continue;
    }
    for (const Range& range : intersections(owned[mine], wanted[other]))
      sends.push_back(piece(peer, mine, other, range));
    for (const Range& range : intersections(owned[other], wanted[mine]))
      receives.push_back(piece(peer, other, mine, range));
  }
  std::vector<int> members;
  for (size_t peer = 0; peer < owned.size(); ++peer)
    if (wanted[peer] == wanted[mine] && to[peer] == to[mine]) members.push_back(static_cast<int>(peer));
  const auto is_with_member = [&](const Copy& copy) {
    return std::ranges::binary_search(members, copy.peer);
  };
  const bool gathers_alike =
      std::ranges::all_of(sends, is_with_member) && std::ranges::all_of(receives, is_with_member);
  if (gathers_alike && members.size() > most_direct) make_rounds(members, rank);
}

void TransferPlan::make_rounds(const std::vector<int>& members, int rank) {
  const size_t count = members.size();
  const auto index_of = [&](int peer) {
    return static_cast<size_t>(std::ranges::lower_bound(members, peer) - members.begin());
  };
  std::vector<std::vector<Range>> owned(count);
  for (const auto* pieces : {&stays, &receives})
    for (const Copy& piece : *pieces)
      owned[index_of(piece.peer)].push_back({piece.to, piece.to + piece.count});
  const auto pieces_of = [&](size_t first, size_t ranks, size_t peer) {
    std::vector<Range> all;
    for (size_t i = first; i < first + ranks; ++i)
      all.insert(all.end(), owned[i % count].begin(), owned[i % count].end());
    std::ranges::sort(all, {}, &Range::begin);
    const Placement joined(all);
    std::vector<Copy> pieces;
    for (const Range& range : joined.ranges())
      pieces.push_back({members[peer % count], range.begin, range.begin, range.size()});
    return pieces;
  };
  const size_t mine = index_of(rank);
  for (size_t distance = 1; distance < count; distance *= 2) {
    const size_t ranks = std::min(distance, count - distance);
    rounds.push_back({.sends = pieces_of(mine, ranks, mine + count - distance),
                      .receives = pieces_of(mine + distance, ranks, mine + distance)});
  }
}

TransferPlan TransferPlan::in_place(const Ownership& owned, int64_t elements, int rank) {
  const std::vector<Placement> places(owned.size(), Placement::whole(elements));
  return {owned, places, Ownership(owned.size(), {{0, elements}}), places, rank};
}

std::vector<SentMessage> TransferPlan::send_messages(const std::byte* from, int64_t element_bytes) const {
  return messages_of(sends, from, &Copy::from, element_bytes);
}

std::vector<SentMessage> TransferPlan::send_messages_from_there(const std::byte* to,
                                                                int64_t element_bytes) const {
  return messages_of(sends, to, &Copy::to, element_bytes);
}

std::vector<ReceivedMessage> TransferPlan::receive_messages(std::byte* to, int64_t element_bytes) const {
  return messages_of(receives, to, &Copy::to, element_bytes);
}

std::vector<MessageRound> TransferPlan::message_rounds(const std::byte* from, std::byte* to,
                                                       int64_t element_bytes) const {
  if (rounds.empty()) return {{send_messages(from, element_bytes), receive_messages(to, element_bytes)}};
  std::vector<MessageRound> all;
  for (const Round& round : rounds)
    all.push_back({messages_of<const std::byte>(round.sends, to, &Copy::to, element_bytes),
                   messages_of(round.receives, to, &Copy::to, element_bytes)});
  return all;
}

}  // namespace lockstep
