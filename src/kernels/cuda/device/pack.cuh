// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/device/dtype.cuh"

namespace lockstep::cuda {

/// 16 bytes of T: what one access moves. Kept as words, because nvcc takes an array of halves apart wherever
/// it is copied, and puts it together again.
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

/// element(0), element(1), ... rounded.
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

/// One 16-byte access; `from` is a multiple of 16 bytes.
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

/// The same for data that is not met again soon: the caches need not keep it.
template <class T>
LOCKSTEP_DEVICE Pack<T> load_pack_streaming(const T* from) {
  const uint4 words = __ldcs(reinterpret_cast<const uint4*>(from));
  return {{words.x, words.y, words.z, words.w}};
}
template <class T>
LOCKSTEP_DEVICE void store_pack_streaming(T* to, const Pack<T>& pack) {
  __stcs(reinterpret_cast<uint4*>(to), uint4{pack.words[0], pack.words[1], pack.words[2], pack.words[3]});
}

/// `width` neighbours, moved by one access, or by 16-byte ones where they are more than 16 bytes.
template <class T, int width>
struct alignas(width * sizeof(T) < 16 ? width * sizeof(T) : 16) Group {
  T values[width];
};

/// `from` is a multiple of the group's size, or of 16 bytes if that is less.
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

/// True if every pointer is a multiple of 16 bytes: what a kernel asks before it uses packs.
template <class... T>
bool is_aligned(const T*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

}  // namespace lockstep::cuda
