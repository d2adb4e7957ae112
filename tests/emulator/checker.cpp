// SPDX-License-Identifier: Apache-2.0
#include "emulator/checker.h"

#include <algorithm>

#include "emulator/arena.h"
#include "emulator/block.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

extern "C" char __executable_start, end;

namespace emulator {
namespace {

/// A memory access of the running thread.
struct Access {
  Block& block;
  const Thread& thread;
  const std::byte* address;
  size_t bytes;
  Touch touch;
  const void* code;
  bool is_shared;  ///< true for shared memory, where accesses of other blocks are ignored

  /// Returns true if an access in that epoch can conflict with this one.
  bool concerns(uint32_t epoch) const {
    return is_shared ? block.epochs.is_this_block(epoch) : block.epochs.is_this_launch(epoch);
  }
  bool writes() const { return touch != Touch::read; }
};

const char* name_of(Touch touch) {
  switch (touch) {
    case Touch::read:
      return "read";
    case Touch::write:
      return "write";
    case Touch::atomic:
      return "atomic access";
    case Touch::async_begin:
      return "cp.async";
    case Touch::async_end:
      return "end of cp.async";
  }
  return "access";
}

std::string describe_place(const Access& access) {
  const SharedMemory& shared = access.block.shared;
  if (access.is_shared)
    return lockstep::concat("shared memory (", shared.size(), " bytes) + ", access.address - shared.begin());
  if (Arena::get().contains(access.address)) return Arena::get().describe(access.address);
  return lockstep::concat("host address ", static_cast<const void*>(access.address));
}

std::string describe_code(const void* code) {
  const auto* at = static_cast<const char*>(code);
  const bool is_here = at >= &__executable_start && at < &end;
  const auto address =
      is_here ? static_cast<uint64_t>(at - &__executable_start) : reinterpret_cast<uintptr_t>(at);
  return lockstep::concat("code address 0x", lockstep::hexadecimal(address, 1), " of ", function_name(code));
}

[[noreturn]] void refuse(const Access& access, const char* kind) {
  access.block.fail([&] {
    return lockstep::concat(kind, ": ", name_of(access.touch), " of ", access.bytes, " bytes at ",
                            describe_place(access), ", ", describe_code(access.code), ",");
  });
}

[[noreturn]] void report_race(const Access& access, const std::string& other) {
  access.block.fail([&] {
    return lockstep::concat("race: ", name_of(access.touch), " of ", access.bytes, " bytes at ",
                            describe_place(access), " is not ordered after ", other, "; ",
                            describe_code(access.code), ",");
  });
}

std::string one_thread(const char* what, int thread) {
  return lockstep::concat("the ", what, " by thread ", thread, " of this block");
}

[[gnu::noinline]] void report_write(const Access& access, const Cell& cell) {
  stop_watching();
  if (cell.flags & Cell::in_flight)
    report_race(access, lockstep::concat("the cp.async of thread ", cell.write_thread,
                                         ", which has not waited for it,"));
  if (!access.block.epochs.is_this_block(cell.write_epoch))
    report_race(access, lockstep::concat("the write by thread ", cell.write_thread, " of another block"));
  report_race(access, one_thread("write", cell.write_thread));
}

[[gnu::noinline]] void report_read(const Access& access, const Cell& cell) {
  stop_watching();
  if (cell.flags & Cell::several_blocks || !access.block.epochs.is_this_block(cell.read_epoch))
    report_race(access, "a read by another block");
  if (cell.read_warp == access.thread.number / warp_size && (cell.flags & Cell::several_warps))
    report_race(access, "a read by another warp of this block");
  uint32_t lanes = cell.read_lanes;
  if (cell.read_warp == access.thread.number / warp_size) lanes &= ~(1u << access.thread.lane);
  report_race(access, one_thread("read", cell.read_warp * warp_size + __builtin_ctz(lanes)));
}

/// Requires that the last write is ordered before this access.
inline void check_write(const Access& access, const Cell& cell) {
  const Epochs& epochs = access.block.epochs;
  if (cell.flags & Cell::in_flight && epochs.is_this_block(cell.write_epoch)) {
    if (access.touch != Touch::async_end || cell.write_thread != access.thread.number)
      report_write(access, cell);
    return;
  }
  if (!access.concerns(cell.write_epoch)) return;
  if (cell.flags & Cell::atomic && access.touch == Touch::atomic) return;
  if (cell.write_epoch == epochs.now()) {
    const Thread& self = access.thread;
    if (cell.write_thread == self.number) return;
    if (cell.write_thread / warp_size == self.number / warp_size &&
        self.warp->clock.is_ordered(self.lane, cell.write_thread % warp_size, cell.write_time))
      return;
    report_write(access, cell);
  }
  if (!epochs.is_this_block(cell.write_epoch)) report_write(access, cell);
}

/// Returns the cell's reading lanes whose reads are not ordered before the running thread.
inline uint32_t unordered_readers(const Access& access, const Cell& cell) {
  const Thread& self = access.thread;
  const WarpClock& clock = self.warp->clock;
  uint32_t others = cell.read_lanes & ~(1u << self.lane);
  if (others == 0 || clock.all > cell.read_time) return 0;
  if (clock.partial)
    for (uint32_t left = others; left != 0; left &= left - 1) {
      const int lane = __builtin_ctz(left);
      if (clock.is_ordered(self.lane, lane, cell.read_time)) others &= ~(1u << lane);
    }
  return others;
}

inline void check_reads(const Access& access, const Cell& cell) {
  const Epochs& epochs = access.block.epochs;
  if (!access.concerns(cell.read_epoch)) return;
  if (cell.flags & Cell::several_blocks || !epochs.is_this_block(cell.read_epoch)) report_read(access, cell);
  if (cell.read_epoch != epochs.now()) return;
  if (cell.flags & Cell::several_warps || cell.read_warp != access.thread.number / warp_size ||
      unordered_readers(access, cell) != 0)
    report_read(access, cell);
}

inline void note_read(const Access& access, Cell& cell) {
  const Epochs& epochs = access.block.epochs;
  const Thread& self = access.thread;
  const auto warp = static_cast<uint8_t>(self.number / warp_size);
  const uint32_t bit = 1u << self.lane;
  if (cell.read_epoch == epochs.now()) {
    if (cell.flags & Cell::several_warps) return;
    if (cell.read_warp != warp) {
      cell.flags |= Cell::several_warps;
      return;
    }
    cell.read_lanes = unordered_readers(access, cell) | bit;
  } else {
    if (!epochs.is_this_block(cell.read_epoch)) {
      const bool in_launch = access.concerns(cell.read_epoch);
      cell.flags =
          static_cast<uint8_t>((cell.flags & ~Cell::several_blocks) | (in_launch ? Cell::several_blocks : 0));
    }
    cell.flags &= static_cast<uint8_t>(~Cell::several_warps);
    cell.read_epoch = epochs.now();
    cell.read_warp = warp;
    cell.read_lanes = bit;
  }
  cell.read_time = self.warp->clock.time;
}

inline void note_write(const Access& access, Cell& cell) {
  cell.write_epoch = access.block.epochs.now();
  cell.write_time = access.thread.warp->clock.time;
  cell.write_thread = static_cast<uint16_t>(access.thread.number);
  cell.read_epoch = 0;
  cell.flags = access.touch == Touch::atomic        ? Cell::atomic
               : access.touch == Touch::async_begin ? Cell::in_flight
                                                    : 0;
}

inline void visit(const Access& access, Cell& cell) {
  check_write(access, cell);
  if (access.writes()) {
    check_reads(access, cell);
    note_write(access, cell);
  } else {
    note_read(access, cell);
  }
}

/// Gives each of the four bytes its own cell. The new cells are copies of the word's cell.
void split(Shadow& shadow, size_t offset) {
  Cell& word = shadow.word(offset);
  if (word.flags & Cell::split) return;
  for (size_t i = 0; i < 4; ++i) shadow.byte(offset / 4 * 4 + i) = word;
  word.flags |= Cell::split;
}

[[gnu::noinline]] void visit_bytes(const Access& access, Shadow& shadow, size_t offset, size_t bytes) {
  split(shadow, offset);
  for (size_t i = 0; i < bytes; ++i) visit(access, shadow.byte(offset + i));
}

inline void visit_word(const Access& access, Shadow& shadow, size_t offset) {
  Cell& word = shadow.word(offset);
  if (!(word.flags & Cell::split)) [[likely]]
    return visit(access, word);
  visit_bytes(access, shadow, offset, 4);
  // After a write only that write matters, and all four bytes have the same one.
  if (access.writes()) word = shadow.byte(offset);
}

inline void visit_range(const Access& access, Shadow& shadow, size_t offset) {
  const size_t stop = offset + access.bytes;
  while (offset < stop) {
    if (offset % 4 == 0 && stop - offset >= 4) {
      visit_word(access, shadow, offset);
      offset += 4;
      continue;
    }
    const size_t part = std::min(stop, offset / 4 * 4 + 4) - offset;
    visit_bytes(access, shadow, offset, part);
    offset += part;
  }
}

/// Checks an access outside shared and device memory. Only the kernel's arguments and the program's constants
/// are allowed there.
[[gnu::noinline]] void visit_elsewhere(const Access& access) {
  const Block& block = access.block;
  const auto within = [&](const void* begin, size_t size) {
    return static_cast<size_t>(access.address - static_cast<const std::byte*>(begin)) < size;
  };
  if (within(block.launch->arguments, block.launch->argument_bytes)) return;
  if (within(&__executable_start, static_cast<size_t>(&end - &__executable_start))) return;
  refuse(access, "host memory");
}

}  // namespace

void touch(const void* address, size_t bytes, Touch touch, const void* code) {
  Block* block = watched_block;
  // Most accesses of compiled code are to variables on the thread's own stack.
  if (block == nullptr || block->stacks.contains(address)) return;
  const bool is_shared = block->shared.is_near(address);
  const Access access{.block = *block,
                      .thread = *block->running,
                      .address = static_cast<const std::byte*>(address),
                      .bytes = bytes,
                      .touch = touch,
                      .code = code,
                      .is_shared = is_shared};
  if (is_shared) {
    const auto offset = static_cast<size_t>(access.address - block->shared.begin());
    if (offset + bytes > block->shared.size() || offset > block->shared.size())
      refuse(access, "out of bounds");
    visit_range(access, block->shared.shadow(), offset);
    return;
  }
  static Arena& arena = Arena::get();
  if (arena.contains(address)) {
    const size_t offset = arena.offset(address);
    if (!arena.is_valid(offset, bytes)) refuse(access, "out of bounds");
    visit_range(access, arena.shadow(), offset);
    return;
  }
  visit_elsewhere(access);
}

void report_misaligned(const void* address, size_t bytes, const void* code) {
  Block* block = watched_block;
  if (block == nullptr) return;
  const bool is_shared = block->shared.is_near(address);
  if (!is_shared && !Arena::get().contains(address)) return;
  refuse(
      {*block, *block->running, static_cast<const std::byte*>(address), bytes, Touch::read, code, is_shared},
      "misaligned");
}

}  // namespace emulator
