// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/device/dtype.cuh"

namespace lockstep::cuda {

/// 16 bytes of T: what one access moves.
template <class T>
struct alignas(16) Pack {
  static constexpr int size = 16 / sizeof(T);
  T values[size];

  LOCKSTEP_DEVICE float operator[](int i) const { return to_float(values[i]); }
  LOCKSTEP_DEVICE void set(int i, float value) { values[i] = from_float<T>(value); }
};

/// One 16-byte access; `from` is a multiple of 16 bytes.
template <class T>
LOCKSTEP_DEVICE Pack<T> load_pack(const T* from) {
  Pack<T> pack;
  *reinterpret_cast<uint4*>(&pack) = *static_cast<const uint4*>(__builtin_assume_aligned(from, 16));
  return pack;
}
template <class T>
LOCKSTEP_DEVICE void store_pack(T* to, const Pack<T>& pack) {
  *static_cast<uint4*>(__builtin_assume_aligned(to, 16)) = *reinterpret_cast<const uint4*>(&pack);
}

/// The same for data that is not met again soon: the caches need not keep it.
template <class T>
LOCKSTEP_DEVICE Pack<T> load_pack_streaming(const T* from) {
  Pack<T> pack;
  *reinterpret_cast<uint4*>(&pack) = __ldcs(reinterpret_cast<const uint4*>(from));
  return pack;
}
template <class T>
LOCKSTEP_DEVICE void store_pack_streaming(T* to, const Pack<T>& pack) {
  __stcs(reinterpret_cast<uint4*>(to), *reinterpret_cast<const uint4*>(&pack));
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
