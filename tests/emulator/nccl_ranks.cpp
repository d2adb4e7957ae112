// SPDX-License-Identifier: Apache-2.0
#include "emulator/nccl_ranks.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

namespace emulator {
namespace {

size_t bytes_of_meeting(int ranks) {
  return sizeof(Meeting) + sizeof(Mailbox) * static_cast<size_t>(ranks * ranks);
}

/// Moves one part of a message if the mailbox allows it. A message with registered memory at only one end is
/// undefined in NCCL's guide, and an H200 waits forever. Here it is an error of the communicator, which then
/// moves no more data.
bool advance(Membership& member, Transfer& transfer) {
  const int from = transfer.is_send ? member.rank : transfer.peer;
  const int to = transfer.is_send ? transfer.peer : member.rank;
  Mailbox& box = member.box(from, to);
  if (box.is_full.load(std::memory_order_acquire) == transfer.is_send) return false;
  if (transfer.is_send) {
    box.bytes = std::min(Mailbox::capacity, transfer.bytes - transfer.done);
    box.is_registered = transfer.is_registered;
    std::memcpy(box.content, transfer.data + transfer.done, box.bytes);
  } else {
    if (box.is_registered != transfer.is_registered) {
      member.has_mixture.store(true);
      return false;
    }
    std::memcpy(transfer.data + transfer.done, box.content, box.bytes);
  }
  transfer.done += box.bytes;
  box.is_full.store(transfer.is_send, std::memory_order_release);
  return true;
}

}  // namespace

Meeting* open_meeting(const char* name, int ranks) {
  const int file = ::shm_open(name, O_RDWR | O_CREAT, 0600);
  if (file < 0) return nullptr;
  const size_t bytes = bytes_of_meeting(ranks);
  const bool is_sized = ::ftruncate(file, static_cast<off_t>(bytes)) == 0;
  void* memory = is_sized ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  ::close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<Meeting*>(memory);
}

Membership::~Membership() {
  ::munmap(meeting, bytes_of_meeting(ranks));
  ::shm_unlink(name.c_str());  // needed if a rank never arrived
}

void move(Membership& member, std::vector<Transfer> transfers) {
  std::erase_if(transfers, [](const Transfer& transfer) { return transfer.bytes == 0; });
  while (!transfers.empty() && !member.is_aborted.load() && !member.has_mixture.load()) {
    bool any = false;
    std::vector<bool> sends(static_cast<size_t>(member.ranks)), receives(sends);
    for (Transfer& transfer : transfers) {
      auto& is_later = transfer.is_send ? sends : receives;
      const auto peer = static_cast<size_t>(transfer.peer);
      if (!is_later[peer]) any = advance(member, transfer) || any;
      is_later[peer] = true;
    }
    std::erase_if(transfers, [](const Transfer& transfer) { return transfer.done == transfer.bytes; });
    if (!any) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void gather(Membership& member, const std::byte* mine, size_t bytes, std::byte* all) {
  std::vector<Transfer> transfers;
  std::byte* const own = all + static_cast<size_t>(member.rank) * bytes;
  if (own != mine) std::memcpy(own, mine, bytes);
  for (int peer = 0; peer < member.ranks; ++peer) {
    if (peer == member.rank) continue;
    transfers.push_back({.is_send = true, .peer = peer, .data = own, .bytes = bytes});
    transfers.push_back({.peer = peer, .data = all + static_cast<size_t>(peer) * bytes, .bytes = bytes});
  }
  move(member, std::move(transfers));
}

void all_reduce(Membership& member, const float* mine, float* sums, size_t count) {
  const auto ranks = static_cast<size_t>(member.ranks);
  std::vector<float> all(ranks * count);
  gather(member, reinterpret_cast<const std::byte*>(mine), count * sizeof(float),
         reinterpret_cast<std::byte*>(all.data()));
  for (size_t i = 0; i < count; ++i) {
    const size_t first = i * ranks / count;
    float sum = all[first * count + i];
    for (size_t step = 1; step < ranks; ++step) sum += all[(first + step) % ranks * count + i];
    sums[i] = sum;
  }
}

}  // namespace emulator
