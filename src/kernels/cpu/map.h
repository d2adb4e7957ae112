// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstring>

#include "core/dtype.h"
#include "core/stream.h"

namespace lockstep {

/// Elements of a chunk of an elementwise kernel: worth waking a thread for, small beside an L2 cache.
inline constexpr int64_t elementwise_grain = 16384;

constexpr int64_t divide_up(int64_t count, int64_t size) { return (count + size - 1) / size; }
constexpr int64_t round_up(int64_t count, int64_t size) { return divide_up(count, size) * size; }

/// What a kernel computes in, given how its tensors are stored: 16-bit floats are storage only.
template <class T>
using Compute = std::conditional_t<std::same_as<T, double>, double, float>;

/// body(first, count) for the pieces of [0, size) one after the other. The body is compiled twice: for whole
/// pieces, whose count is a constant so that its arrays become registers, and for the last one.
template <int64_t piece, class Body>
[[gnu::always_inline]] inline void for_each_piece(int64_t size, const Body& body) {
  int64_t first = 0;
  for (; first + piece <= size; first += piece) body(first, piece);
  if (first < size) body(first, size - first);
}

/// y[i] = f(x[i]...) for i in [begin, end), computed in C. An output may be one of the inputs.
template <class C, class Y, class F, class... X>
void map_range(int64_t begin, int64_t end, Y* y, F f, const X*... x) {
  // Results go through an array that nothing aliases: else the compiler's overlap test sends the loop for y =
  // x, or every loop with too many pointers, down the scalar path.
  constexpr int64_t piece = 64;
  for_each_piece<piece>(
      end - begin, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
        Y values[piece];
        const int64_t start = begin + first;
        for (int64_t i = 0; i < count; ++i) values[i] = static_cast<Y>(f(static_cast<C>(x[start + i])...));
        std::memcpy(y + start, values, static_cast<size_t>(count) * sizeof(Y));
      });
}

/// y[i] = x[i] for i in [0, count), rounded to nearest even where Y holds fewer digits.
template <class X, class Y>
void convert_values(const X* x, int64_t count, Y* y) {
  if constexpr (std::same_as<X, Y>)
    std::copy_n(x, count, y);
  else
    map_range<float>(
        0, count, y, [](float value) { return value; }, x);
}

/// y[i] = f(x[i]...) for i in [0, count), shared out over the stream's threads.
template <class T, class F, class... X>
void map(const CpuStream& stream, int64_t count, T* y, F f, const X*... x) {
  stream.for_each_chunk(count, elementwise_grain,
                        [&](int64_t begin, int64_t end) { map_range<Compute<T>>(begin, end, y, f, x...); });
}

}  // namespace lockstep
