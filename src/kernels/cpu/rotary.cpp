// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/rotary.h"

#include <cmath>

#include "lockstep/kernels/cpu/map.h"
#include "lockstep/kernels/math.h"

namespace lockstep {
namespace {

/// Writes the cosines and sines of a position times each frequency.
template <class T>
void write_angles(const T* frequencies, int64_t half, int64_t position, T* y) {
  constexpr int64_t piece = 64;
  for_each_piece<piece>(
      half, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
        T cosines[piece], sines[piece];
        for (int64_t i = 0; i < count; ++i) {
          const T angle = static_cast<T>(position) * frequencies[first + i];
          const auto [sine, cosine] = math::sine_and_cosine(static_cast<double>(angle));
          cosines[i] = static_cast<T>(cosine);
          sines[i] = static_cast<T>(sine);
        }
        std::copy_n(cosines, count, y + first);
        std::copy_n(sines, count, y + half + first);
      });
}

/// Rotates one head. y may be x.
template <class S, class T>
void rotate_head(const S* x, const T* cosines, const T* sines, T direction, int64_t half, S* y) {
  constexpr int64_t piece = 64;
  for_each_piece<piece>(
      half, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
        S left[piece], right[piece];
        for (int64_t i = 0; i < count; ++i) {
          const T a = static_cast<T>(x[first + i]), b = static_cast<T>(x[half + first + i]);
          const T cosine = cosines[first + i], sine = direction * sines[first + i];
          left[i] = static_cast<S>(std::fma(a, cosine, -(b * sine)));
          right[i] = static_cast<S>(std::fma(b, cosine, a * sine));
        }
        std::memcpy(y + first, left, static_cast<size_t>(count) * sizeof(S));
        std::memcpy(y + half + first, right, static_cast<size_t>(count) * sizeof(S));
      });
}

}  // namespace

void run(CpuStream stream, const RotaryTable& k) {
  const int64_t half = k.half();
  const int32_t* positions = k.positions.as<int32_t>();
  const int64_t grain = std::max<int64_t>(1, elementwise_grain / 16 / std::max<int64_t>(1, half));
  with_compute_type(k.y.dtype, [&]<class T>() {
    stream.for_each_chunk(k.tokens(), grain, [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token)
        write_angles(k.frequencies.as<T>(), half, positions ? positions[token] : token,
                     k.y.as<T>() + token * 2 * half);
    });
  });
}

void run(CpuStream stream, const Rotate& k) {
  if (k.x.size() == 0) return;
  const int64_t size = k.size(), half = size / 2, columns = k.x.shape[-1], tokens = k.table.shape[0];
  with_float_type(k.x.dtype, [&]<class S>() {
    using T = Compute<S>;
    const T direction = k.inverse ? T(-1) : T(1);
    const int64_t grain = std::max<int64_t>(1, elementwise_grain / columns);
    stream.for_each_chunk(k.x.shape.rows(), grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* cosines = k.table.as<T>() + row % tokens * size;
        for (int64_t first = row * columns; first < (row + 1) * columns; first += size)
          rotate_head(k.x.as<S>() + first, cosines, cosines + half, direction, half, k.y.as<S>() + first);
      }
    });
  });
}

}  // namespace lockstep
