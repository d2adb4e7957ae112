// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "emulator/checker.h"

namespace emulator {

/// All device and pinned memory that the emulated CUDA allocates, in one range of addresses. A freed address
/// is reused only after the whole range was used, so that late accesses are detected.
class Arena {
 public:
  enum class Kind { device, pinned };
  struct Allocation {
    size_t bytes;
    Kind kind;
    int device;
    uint64_t number;
  };

  /// A live allocation and its first byte.
  struct Live {
    std::byte* begin;
    Allocation allocation;
  };

  static Arena& get();

  /// Allocates poisoned memory at a multiple of 256 bytes, with a gap after it. Returns null at the memory
  /// limit.
  void* allocate(size_t bytes, Kind kind, int device);
  /// Frees an allocation. Returns false if there is none at this address.
  bool release(void* address, Kind kind);
  void use_only(const void* address, size_t bytes);

  bool contains(const void* address) const { return memory_.contains(address); }
  size_t offset(const void* address) const {
    return static_cast<size_t>(static_cast<const std::byte*>(address) - memory_.begin());
  }
  /// Returns true if all the bytes are in use. This is the fast check for each access.
  bool is_valid(size_t at, size_t bytes) const {
    return (at % granule) + bytes <= valid()[at / granule] || is_valid_over_granules(at, bytes);
  }
  bool is_valid(const void* address, size_t bytes) const {
    return bytes == 0 || (contains(address) && is_valid(offset(address), bytes));
  }
  /// Finds the allocation that contains an address. Returns its start, or null.
  const void* find(const void* address, Allocation& allocation);
  /// Returns all live allocations, by address.
  std::vector<Live> live();
  /// Returns the address as text, for example "allocation 3 (4096 bytes) + 1024".
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
  Reservation valid_;  ///< one uint16_t per granule: the number of its bytes in use
  Shadow shadow_;
  std::mutex mutex_;
  std::map<size_t, Allocation> live_;
  std::map<size_t, Allocation> freed_;
  std::map<int, size_t> used_;
  size_t cursor_;  ///< start of the next search; never 0, so that the first block has a gap before it
  uint64_t made_ = 0;
};

}  // namespace emulator
