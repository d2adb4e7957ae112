// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "emulator/checker.h"

namespace emulator {

/// All memory that CUDA hands out, device and pinned, in one range of addresses. A freed address is not used
/// again before the whole range has been, so that a late access is seen.
class Arena {
 public:
  enum class Kind { device, pinned };
  struct Allocation {
    size_t bytes;
    Kind kind;
    int device;
    uint64_t number;
  };

  static Arena& get();

  /// Poisoned memory at a multiple of 256 bytes with a gap behind it; null when the limit is reached.
  void* allocate(size_t bytes, Kind kind, int device);
  /// False if nothing was allocated there.
  bool release(void* address, Kind kind);
  void use_only(const void* address, size_t bytes);

  bool contains(const void* address) const { return memory_.contains(address); }
  size_t offset(const void* address) const {
    return static_cast<size_t>(static_cast<const std::byte*>(address) - memory_.begin());
  }
  /// True if all the bytes are in use; the quick check of each access.
  bool is_valid(size_t at, size_t bytes) const {
    return (at % granule) + bytes <= valid()[at / granule] || is_valid_over_granules(at, bytes);
  }
  bool is_valid(const void* address, size_t bytes) const {
    return bytes == 0 || (contains(address) && is_valid(offset(address), bytes));
  }
  /// The allocation around an address: its start, or null.
  const void* find(const void* address, Allocation& allocation);
  /// "allocation 3 (4096 bytes) + 1024".
  std::string describe(const void* address);

  Shadow& shadow() { return shadow_; }
  size_t used_bytes(int device);
  static size_t limit_bytes();

 private:
  static constexpr size_t granule = 256;

  Arena();
  uint16_t* valid() const { return reinterpret_cast<uint16_t*>(valid_.begin()); }
  bool is_valid_over_granules(size_t at, size_t bytes) const;
  void mark(size_t at, size_t bytes, size_t used);
  size_t find_room(size_t bytes);

  Reservation memory_;
  Reservation valid_;  ///< a uint16_t a granule: how many of its bytes are in use
  Shadow shadow_;
  std::mutex mutex_;
  std::map<size_t, Allocation> live_;
  std::map<size_t, Allocation> freed_;
  std::map<int, size_t> used_;
  size_t cursor_;  ///< where the next search begins; never 0, so that the first block has a gap before it
  uint64_t made_ = 0;
};

}  // namespace emulator
