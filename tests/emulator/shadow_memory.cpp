// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cstring>
#include <sys/mman.h>

#include "emulator/checker.h"
#include "lockstep/core/error.h"

namespace emulator {
namespace {

// Each host thread numbers its epochs in its own range.
constexpr int epoch_slots = 64;
constexpr uint32_t epochs_per_slot = 1u << 26;
std::atomic<uint64_t> slots_in_use{0};
uint32_t slot_counters[epoch_slots];

constexpr size_t page = 4096;

}  // namespace

Epochs::Epochs() {
  uint64_t in_use = slots_in_use;
  do {
    lockstep::expect(~in_use != 0, "emulator: more than 64 host threads run kernels");
    slot_ = __builtin_ctzll(~in_use);
  } while (!slots_in_use.compare_exchange_weak(in_use, in_use | uint64_t{1} << slot_));
  now_ = launch_ = block_ = next();
}

Epochs::~Epochs() { slots_in_use &= ~(uint64_t{1} << slot_); }

uint32_t Epochs::next() {
  uint32_t& counter = slot_counters[slot_];
  // Epoch 0 is reserved for memory that was never accessed.
  counter = (counter + 1) % epochs_per_slot;
  if (counter == 0) counter = 1;
  return now_ = static_cast<uint32_t>(slot_) * epochs_per_slot + counter;
}

void WarpClock::reset() {
  if (partial) known = {};
  partial = false;
  time = all = 0;
}

void WarpClock::meet(uint32_t mask, bool is_all) {
  ++time;
  if (is_all) {
    all = time;
    return;
  }
  partial = true;
  std::array<uint32_t, 32> joint = {};
  const auto for_each_lane = [mask](auto&& body) {
    for (uint32_t left = mask; left != 0; left &= left - 1) body(static_cast<size_t>(__builtin_ctz(left)));
  };
  for_each_lane([&](size_t lane) {
    for (size_t other = 0; other < 32; ++other) joint[other] = std::max(joint[other], known[lane][other]);
  });
  for_each_lane([&](size_t lane) { joint[lane] = time; });
  for_each_lane([&](size_t lane) { known[lane] = joint; });
}

Reservation::Reservation(size_t bytes) : size_(bytes) {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  lockstep::expect(memory != MAP_FAILED, "emulator: cannot reserve ", bytes, " bytes of addresses");
  begin_ = static_cast<std::byte*>(memory);
}

Reservation::~Reservation() { munmap(begin_, size_); }

void Reservation::forget(size_t first, size_t bytes) {
  const size_t begin = (first + page - 1) / page * page;
  const size_t end = (first + bytes) / page * page;
  if (begin < end) madvise(begin_ + begin, end - begin, MADV_DONTNEED);
}

void Shadow::forget(size_t first, size_t bytes) {
  words_.forget(first / 4 * sizeof(Cell), bytes / 4 * sizeof(Cell));
  bytes_.forget(first * sizeof(Cell), bytes * sizeof(Cell));
}

void SharedMemory::begin_block(size_t bytes) {
  bytes_ = bytes;
  std::memset(begin(), 0xff, bytes);
}

}  // namespace emulator
