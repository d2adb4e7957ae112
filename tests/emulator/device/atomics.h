// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "emulator/device/thread.h"

// Atomic operations on integers. Floating-point numbers have none, because their sums would depend on the
// order of the threads.

namespace emulator {

template <class T, class Next>
[[clang::no_sanitize("thread")]] T exchange_value(T* address, Next&& next) {
  const T before = *address;
  *address = next(before);
  return before;
}

/// Replaces *address by next(*address) and returns the old value. It is atomic because only one fiber runs at
/// a time.
template <class T, class Next>
T update(T* address, Next&& next) {
  static_assert(std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  touch_atomically(address, sizeof(T));
  return exchange_value(address, next);
}

}  // namespace emulator

template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return emulator::update(address, [value](T before) { return static_cast<T>(before + value); });
}
