// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

// How the ranks of the emulated NCCL exchange data: through shared memory that the unique id names.

namespace emulator {

/// A buffer for messages from one rank to another. It is full until the receiver has copied it. Longer
/// messages are sent in several parts.
struct Mailbox {
  static constexpr size_t capacity = 16 << 10;
  std::atomic<bool> is_full;
  bool is_registered;  ///< true if the sender's memory is registered
  size_t bytes;
  std::byte content[capacity];
};

/// The layout of the shared memory. New pages are zero, and zero is the initial state of all members.
struct Meeting {
  std::atomic<int> ranks_here;
  std::atomic<int> ranks_finalized;
  Mailbox boxes[1];  ///< one mailbox for each pair of ranks
};

/// Opens the shared memory of a communicator. Returns null if that is not possible.
Meeting* open_meeting(const char* name, int ranks);

/// The state that a rank shares with its enqueued work. The work may outlive the communicator.
struct Membership {
  std::string name;
  Meeting* meeting = nullptr;
  int rank = 0;
  int ranks = 1;
  std::atomic<bool> is_aborted{false};
  std::atomic<bool> has_mixture{false};  ///< true after a message with registered memory at only one end
  std::atomic<int> recorded{0};          ///< operations in graphs that have not been destroyed

  Membership() = default;
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  Mailbox& box(int from, int to) const { return meeting->boxes[from * ranks + to]; }
};

struct Transfer {
  bool is_send = false;
  int peer = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;
  bool is_registered = false;
  size_t done = 0;
};

/// Moves all transfers concurrently. Transfers between the same two ranks keep their order. Returns early
/// after an abort or an error of the communicator.
void move(Membership& member, std::vector<Transfer> transfers);

/// Gathers every rank's data in rank order.
void gather(Membership& member, const std::byte* mine, size_t bytes, std::byte* all);

/// Adds in the order of a ring. The sum of chunk c begins with rank c.
void all_reduce(Membership& member, const float* mine, float* sums, size_t count);

}  // namespace emulator
