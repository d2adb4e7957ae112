// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <type_traits>

#include "emulator/device/thread.h"

// Operations that the lanes of a warp perform together. The last two parameters are the call's file and line.

namespace emulator {

/// Exchanges operands between the lanes of the mask. Returns the operand of lane `source`.
template <class T>
T exchange(const char* operation, uint32_t mask, T value, int source, Site site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = shuffle(operation, mask, bits, source, site);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

/// Returns the last lane of the calling lane's segment of `width` lanes.
inline int segment_end(int width) { return lane() | (width - 1); }

}  // namespace emulator

inline void __syncwarp(unsigned mask = 0xffffffffu, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  emulator::warp_barrier(mask, {file, line});
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, const char* file = __builtin_FILE(),
              int line = __builtin_LINE()) {
  const int lane = (emulator::lane() & ~(width - 1)) | (source & (width - 1));
  return emulator::exchange("__shfl_sync", mask, value, lane, {file, line});
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32,
                 const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const int lane = emulator::lane(), source = lane - static_cast<int>(distance);
  const bool is_inside = source >= (lane & ~(width - 1));
  return emulator::exchange("__shfl_up_sync", mask, value, is_inside ? source : lane, {file, line});
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32,
                   const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const int lane = emulator::lane(), source = lane + static_cast<int>(distance);
  const bool is_inside = source <= emulator::segment_end(width);
  return emulator::exchange("__shfl_down_sync", mask, value, is_inside ? source : lane, {file, line});
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  const int lane = emulator::lane(), source = lane ^ lanes;
  const bool is_inside = source <= emulator::segment_end(width);
  return emulator::exchange("__shfl_xor_sync", mask, value, is_inside ? source : lane, {file, line});
}

inline unsigned __ballot_sync(unsigned mask, int predicate, const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
  return emulator::ballot("__ballot_sync", mask, predicate != 0, {file, line});
}
inline int __any_sync(unsigned mask, int predicate, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
  return emulator::ballot("__any_sync", mask, predicate != 0, {file, line}) != 0;
}
inline int __all_sync(unsigned mask, int predicate, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
  return emulator::ballot("__all_sync", mask, predicate == 0, {file, line}) == 0;
}
