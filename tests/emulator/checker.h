// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// The race checker. It stores the last accesses to each word and the order of two accesses.
//
// An epoch is the time between two block barriers of one block. The epoch numbers of a host thread only grow,
// so one number identifies the launch, the block and the barrier. Inside an epoch only __syncwarp orders
// lanes of a warp. Warps have no order inside an epoch. Blocks of a launch have no order.

namespace emulator {

/// The last accesses to four bytes, or to one byte if threads access the four bytes separately.
struct Cell {
  enum Flag : uint8_t {
    split = 1,           ///< each of the four bytes has its own cell
    in_flight = 2,       ///< a cp.async writes here and no thread has waited for it
    several_warps = 4,   ///< several warps read it in this epoch
    several_blocks = 8,  ///< several blocks read it in this launch
    atomic = 16          ///< the last write was atomic
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

/// The order between lanes of one warp. Time is the number of __syncwarps of the warp.
struct WarpClock {
  uint32_t time = 0;
  uint32_t all = 0;      ///< last time at which all remaining lanes met
  bool partial = false;  ///< true if some lanes met without the others, so that `known` is used
  std::array<std::array<uint32_t, 32>, 32> known =
      {};  ///< [lane][other lane]: last time of `other` that `lane` is after

  void reset();
  void meet(uint32_t mask, bool is_all);
  /// Returns true if an access of `other` at time `then` is ordered before an access of `lane` now.
  bool is_ordered(int lane, int other, uint32_t then) const {
    return all > then || (partial && known[static_cast<size_t>(lane)][static_cast<size_t>(other)] > then);
  }
};

/// The epochs of one host thread. No other host thread uses the same range of numbers.
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

/// A range of zeroed address space. Only the used pages take memory.
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
  /// Returns the whole pages of [first, first + bytes) to the system. They are zero afterwards.
  void forget(size_t first, size_t bytes);

 private:
  std::byte* begin_ = nullptr;
  size_t size_ = 0;
};

/// The cells for a range of memory.
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

/// A block's dynamic shared memory and its shadow. An access to the guard space on either side is an error.
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

/// Ends the launch with an error if the misaligned address is in device or shared memory.
void report_misaligned(const void* address, size_t bytes, const void* code);

/// Checks and records an access of the running thread. Does nothing outside kernels. `code` is the code
/// address of the access.
void touch(const void* address, size_t bytes, Touch touch, const void* code);

}  // namespace emulator
