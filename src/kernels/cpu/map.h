// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstring>

#include "lockstep/core/dtype.h"
#include "lockstep/core/stream.h"
#include "lockstep/kernels/view.h"

namespace lockstep {

/// Number of elements in a chunk of an elementwise kernel: worth waking a thread, and small next to an L2
/// cache.
inline constexpr int64_t elementwise_grain = 16384;

constexpr int64_t divide_up(int64_t count, int64_t size) { return (count + size - 1) / size; }
constexpr int64_t round_up(int64_t count, int64_t size) { return divide_up(count, size) * size; }

/// The type in which a kernel computes, given the type in which its tensors are stored. Floats of 16 bits are
/// for storage only.
template <class T>
using Compute = std::conditional_t<std::same_as<T, double>, double, float>;

/// Calls body(first, count) for the pieces of [0, size) in order. The body is compiled twice: for whole
/// pieces and for the last one. The count of whole pieces is a constant, so that arrays become registers.
template <int64_t piece, class Body>
[[gnu::always_inline]] inline void for_each_piece(int64_t size, const Body& body) {
  int64_t first = 0;
  for (; first + piece <= size; first += piece) body(first, piece);
  if (first < size) body(first, size - first);
}

/// y[i] = f(x[i]...) for i in [begin, end), computed in C. An output may be one of the inputs.
template <class C, class Y, class F, class... X>
void map_range(int64_t begin, int64_t end, Y* y, F f, const X*... x) {
  // Results go through an array that nothing aliases. Otherwise the compiler's overlap test sends the loop
  // down the scalar path for y = x, or always if there are too many pointers.
  constexpr int64_t piece = 64;
  for_each_piece<piece>(
      end - begin, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
        Y values[piece];
        const int64_t start = begin + first;
        for (int64_t i = 0; i < count; ++i) values[i] = static_cast<Y>(f(static_cast<C>(x[start + i])...));
        std::memcpy(y + start, values, static_cast<size_t>(count) * sizeof(Y));
      });
}

/// y[i] = x[i] for i in [0, count), rounded to nearest even if Y holds fewer digits.
template <class X, class Y>
void convert_values(const X* x, int64_t count, Y* y) {
  if constexpr (std::same_as<X, Y>)
    std::copy_n(x, count, y);
  else
    map_range<float>(
        0, count, y, [](float value) { return value; }, x);
}

/// y[i] = f(x[i]...) for i in [0, count), divided among the threads of the stream.
template <class T, class F, class... X>
void map(const CpuStream& stream, int64_t count, T* y, F f, const X*... x) {
  stream.for_each_chunk(count, elementwise_grain,
                        [&](int64_t begin, int64_t end) { map_range<Compute<T>>(begin, end, y, f, x...); });
}

/// y = f(x...) for views of one dtype; 16-bit floats are computed in f32.
template <class F, class... Views>
void map_views(const CpuStream& stream, const View& y, F f, const Views&... x) {
  with_float_type(y.dtype, [&]<class T>() { map(stream, y.size(), y.as<T>(), f, x.template as<T>()...); });
}

}  // namespace lockstep
