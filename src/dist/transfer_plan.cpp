// SPDX-License-Identifier: Apache-2.0
#include "dist/transfer_plan.h"

#include <algorithm>

#include "core/error.h"

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
}

TransferPlan TransferPlan::in_place(const Ownership& owned, int64_t elements, int rank) {
  const std::vector<Placement> places(owned.size(), Placement::whole(elements));
  const Ownership wanted(owned.size(), {{0, elements}});
  TransferPlan transfer(owned, places, wanted, places, rank);
  transfer.stays.clear();
  return transfer;
}

std::vector<Message> TransferPlan::send_messages(const std::byte* from, int64_t element_bytes) const {
  std::vector<Message> messages;
  // The data of a sent message is only read.
  for (const Copy& piece : sends)
    messages.push_back(
        {piece.peer, const_cast<std::byte*>(from) + piece.from * element_bytes, piece.count * element_bytes});
  return messages;
}

std::vector<Message> TransferPlan::send_messages_from_there(std::byte* to, int64_t element_bytes) const {
  std::vector<Message> messages;
  for (const Copy& piece : sends) {
    const auto stay = std::ranges::find_if(stays, [&](const Copy& one) {
      return one.from <= piece.from && piece.from + piece.count <= one.from + one.count;
    });
    expect(stay != stays.end(), "this rank sends elements that it does not keep in its other buffer");
    const int64_t there = stay->to + piece.from - stay->from;
    messages.push_back({piece.peer, to + there * element_bytes, piece.count * element_bytes});
  }
  return messages;
}

std::vector<Message> TransferPlan::receive_messages(std::byte* to, int64_t element_bytes) const {
  std::vector<Message> messages;
  for (const Copy& piece : receives)
    messages.push_back({piece.peer, to + piece.to * element_bytes, piece.count * element_bytes});
  return messages;
}

}  // namespace lockstep
