// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/kernels/cuda/device/dtype.cuh"

namespace lockstep::cuda {

/// 16 bytes of T, which one access moves. They are stored as words because nvcc splits an array of halves
/// wherever it is copied and then joins it again.
template <class T>
struct alignas(16) Pack {
  static constexpr int size = 16 / sizeof(T);
  uint32_t words[4] = {};

  LOCKSTEP_DEVICE float operator[](int i) const {
    if constexpr (sizeof(T) == 4)
      return __uint_as_float(words[i]);
    else
      return i % 2 == 0 ? low_to_float<T>(words[i / 2]) : high_to_float<T>(words[i / 2]);
  }
  LOCKSTEP_DEVICE void set(int i, float value) { put(i, from_float<T>(value)); }
  LOCKSTEP_DEVICE void put(int i, T value) {
    if constexpr (sizeof(T) == 4)
      words[i] = bits_of(value);
    else
      words[i / 2] = i % 2 == 0 ? (words[i / 2] & 0xffff0000u) | bits_of(value)
                                : (words[i / 2] & 0x0000ffffu) | bits_of(value) << 16;
  }
};

/// Returns element(0), element(1), ... rounded to T.
template <class T, class Element>
LOCKSTEP_DEVICE Pack<T> make_pack(Element element) {
  Pack<T> pack;
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    if constexpr (sizeof(T) == 4)
      pack.words[word] = __float_as_uint(element(word));
    else
      pack.words[word] = pack_pair<T>(element(2 * word), element(2 * word + 1));
  }
  return pack;
}

/// Loads 16 bytes by one access. `from` is a multiple of 16 bytes.
template <class T>
LOCKSTEP_DEVICE Pack<T> load_pack(const T* from) {
  const uint4 words = *static_cast<const uint4*>(__builtin_assume_aligned(from, 16));
  return {{words.x, words.y, words.z, words.w}};
}
template <class T>
LOCKSTEP_DEVICE void store_pack(T* to, const Pack<T>& pack) {
  *static_cast<uint4*>(__builtin_assume_aligned(to, 16)) = {pack.words[0], pack.words[1], pack.words[2],
                                                            pack.words[3]};
}

/// Loads 16 bytes that are not used again soon, so the caches need not keep them.
template <class T>
LOCKSTEP_DEVICE Pack<T> load_pack_streaming(const T* from) {
  const uint4 words = __ldcs(reinterpret_cast<const uint4*>(from));
  return {{words.x, words.y, words.z, words.w}};
}
template <class T>
LOCKSTEP_DEVICE void store_pack_streaming(T* to, const Pack<T>& pack) {
  __stcs(reinterpret_cast<uint4*>(to), uint4{pack.words[0], pack.words[1], pack.words[2], pack.words[3]});
}

/// A group of `width` neighbours. One access moves it, or several 16-byte accesses if it is larger than 16
/// bytes.
template <class T, int width>
struct alignas(width * sizeof(T) < 16 ? width * sizeof(T) : 16) Group {
  T values[width];
};

/// Loads a group. `from` is a multiple of the group's size, or of 16 bytes if that is less.
template <int width, class T>
LOCKSTEP_DEVICE Group<T, width> load_group(const T* from) {
  using Vector = Group<T, width>;
  return *static_cast<const Vector*>(__builtin_assume_aligned(from, alignof(Vector)));
}
template <int width, class T>
LOCKSTEP_DEVICE void store_group(T* to, const Group<T, width>& group) {
  using Vector = Group<T, width>;
  *static_cast<Vector*>(__builtin_assume_aligned(to, alignof(Vector))) = group;
}

/// Returns true if every pointer is a multiple of 16 bytes. Kernels need this to use packs.
template <class... T>
bool is_aligned(const T*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

}  // namespace lockstep::cuda
