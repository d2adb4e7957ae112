// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// The race checker: who touched a word last, and what orders two touches.
//
// An epoch is the time between two block barriers of one block; epochs of a host thread only grow, so one
// number tells the launch, the block and the barrier. Inside an epoch only __syncwarp orders lanes of a warp,
// and nothing orders warps. Between blocks of a launch there is no order at all.

namespace emulator {

/// What is known of four bytes, or of one where threads touch them apart.
struct Cell {
  enum Flag : uint8_t {
    split = 1,           ///< the four bytes have cells of their own
    in_flight = 2,       ///< a cp.async that nobody waited for writes here
    several_warps = 4,   ///< of this epoch read it
    several_blocks = 8,  ///< of this launch read it
    atomic = 16          ///< so was the last write
  };

  uint32_t write_epoch;
  uint32_t write_time;
  uint32_t read_epoch;
  uint32_t read_time;
  uint32_t read_lanes;
  uint16_t write_thread;
  uint8_t read_warp;
  uint8_t flags;
};

enum class Touch { read, write, atomic, async_begin, async_end };

/// What lanes of one warp know of each other. Time counts the __syncwarps of the warp.
struct WarpClock {
  uint32_t time = 0;
  uint32_t all = 0;      ///< the last time at which all lanes that are left met
  bool partial = false;  ///< some met without the others, so that `known` counts
  std::array<std::array<uint32_t, 32>, 32> known = {};  ///< [lane][of lane]

  void reset();
  void meet(uint32_t mask, bool is_all);
  /// True if what `other` did at `then` is ordered before what `lane` does now.
  bool is_ordered(int lane, int other, uint32_t then) const {
    return all > then || (partial && known[static_cast<size_t>(lane)][static_cast<size_t>(other)] > then);
  }
};

/// The epochs of one host thread: a range of numbers that no other host thread uses.
class Epochs {
 public:
  Epochs();
  ~Epochs();
  Epochs(const Epochs&) = delete;
  Epochs& operator=(const Epochs&) = delete;

  void begin_launch() { launch_ = next(); }
  void begin_block() { block_ = next(); }
  void pass_barrier() { next(); }

  uint32_t now() const { return now_; }
  bool is_this_launch(uint32_t epoch) const { return epoch - launch_ <= now_ - launch_; }
  bool is_this_block(uint32_t epoch) const { return epoch - block_ <= now_ - block_; }

 private:
  uint32_t next();

  int slot_ = 0;
  uint32_t launch_ = 0;
  uint32_t block_ = 0;
  uint32_t now_ = 0;
};

/// A range of zeroed address space that takes memory only where it is used.
class Reservation {
 public:
  explicit Reservation(size_t bytes);
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  std::byte* begin() const { return begin_; }
  size_t size() const { return size_; }
  bool contains(const void* address) const {
    return static_cast<size_t>(static_cast<const std::byte*>(address) - begin_) < size_;
  }
  /// Zeroes the whole pages of [first, first + bytes) and gives them back.
  void forget(size_t first, size_t bytes);

 private:
  std::byte* begin_ = nullptr;
  size_t size_ = 0;
};

/// The cells of a range of memory.
class Shadow {
 public:
  explicit Shadow(size_t bytes) : words_(bytes / 4 * sizeof(Cell)), bytes_(bytes * sizeof(Cell)) {}

  Cell& word(size_t offset) { return reinterpret_cast<Cell*>(words_.begin())[offset / 4]; }
  Cell& byte(size_t offset) { return reinterpret_cast<Cell*>(bytes_.begin())[offset]; }
  void forget(size_t first, size_t bytes);

 private:
  Reservation words_;
  Reservation bytes_;
};

/// A block's dynamic shared memory, with untouchable space on both sides, and its shadow.
class SharedMemory {
 public:
  static constexpr size_t guard = 1 << 18;
  static constexpr size_t capacity = 1 << 18;

  SharedMemory() : memory_(guard + capacity + guard), shadow_(capacity) {}

  /// Poisons the memory of a new block.
  void begin_block(size_t bytes);
  std::byte* begin() const { return memory_.begin() + guard; }
  size_t size() const { return bytes_; }
  bool is_near(const void* address) const { return memory_.contains(address); }
  Shadow& shadow() { return shadow_; }

 private:
  Reservation memory_;
  Shadow shadow_;
  size_t bytes_ = 0;
};

/// Ends the launch if the running thread's address is in device or shared memory.
void report_misaligned(const void* address, size_t bytes, const void* code);

/// Checks and notes an access of the running thread; nothing outside kernels. `code` is where it happens.
void touch(const void* address, size_t bytes, Touch touch, const void* code);

}  // namespace emulator
