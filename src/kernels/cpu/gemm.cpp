// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <utility>

#include "core/dtype.h"
#include "kernels/cpu/gemm_vector.h"

namespace lockstep::gemm {
namespace {

template <class T, Left layout, size_t rows, size_t vectors>
void multiply_block(T* tile, const T* left, const T* right, int64_t depth, bool add) {
  constexpr int64_t row_stride = layout == Left::panel ? 1 : tile_columns<T>;
  constexpr int64_t depth_stride = layout == Left::panel ? tile_rows : 1;
  Vector<T> sums[rows][vectors] = {};
  for (int64_t d = 0; d < depth; ++d) {
    Vector<T> b[vectors];
    unroll<vectors>([&](auto v) { b[v] = load<Vector<T>>(right + v * vector_lanes<T>); });
    unroll<rows>([&](auto row) {
      const Vector<T> a = broadcast(left[row * row_stride]);
      unroll<vectors>([&](auto v) { sums[row][v] = fused_multiply_add<T>(a, b[v], sums[row][v]); });
    });
    left += depth_stride;
    right += tile_columns<T>;
  }
  unroll<rows * vectors>([&](auto i) {
    T* target = tile + i / vectors * tile_columns<T> + i % vectors * vector_lanes<T>;
    const Vector<T> sum = sums[i / vectors][i % vectors];
    store(target, add ? load<Vector<T>>(target) + sum : sum);
  });
}

template <class T>
using Block = void (*)(T*, const T*, const T*, int64_t, bool);

/// One microkernel for every tile of 4, 8, ... rows and 1, 2, ... vectors.
template <class T, Left layout, size_t... indices>
constexpr std::array<Block<T>, sizeof...(indices)> blocks(std::index_sequence<indices...>) {
  return {multiply_block<T, layout, 4 * (indices / tile_vectors + 1), indices % tile_vectors + 1>...};
}

template <class T, Left layout>
constexpr auto table = blocks<T, layout>(std::make_index_sequence<tile_rows / 4 * tile_vectors>{});

/// Lanes of groups of four: a0 b0 a1 b1 and a2 b2 a3 b3, or two neighbours of each.
template <class V, size_t... i>
V low_lanes(V a, V b, std::index_sequence<i...>) {
  constexpr size_t n = sizeof...(i);
  return __builtin_shufflevector(a, b, (i / 4 * 4 + i % 4 / 2 + i % 2 * n)...);
}
template <class V, size_t... i>
V high_lanes(V a, V b, std::index_sequence<i...>) {
  constexpr size_t n = sizeof...(i);
  return __builtin_shufflevector(a, b, (i / 4 * 4 + 2 + i % 4 / 2 + i % 2 * n)...);
}
template <class V, size_t... i>
V low_pairs(V a, V b, std::index_sequence<i...>) {
  constexpr size_t n = sizeof...(i);
  return __builtin_shufflevector(a, b, (i / 4 * 4 + i % 2 + i % 4 / 2 * n)...);
}
template <class V, size_t... i>
V high_pairs(V a, V b, std::index_sequence<i...>) {
  constexpr size_t n = sizeof...(i);
  return __builtin_shufflevector(a, b, (i / 4 * 4 + 2 + i % 2 + i % 4 / 2 * n)...);
}

/// target[d][lane] = source[lane][d] for four lanes and as many d as `count`, a multiple of four.
template <size_t count, class T>
[[gnu::always_inline]] inline void transpose_four(T* target, int64_t target_stride, const T* source,
                                                  int64_t source_stride) {
  using V = typename VectorOf<T, count>::Type;
  using Quad = typename VectorOf<T, 4>::Type;
  constexpr std::make_index_sequence<count> lanes;
  const V r0 = load<V>(source);
  const V r1 = load<V>(source + source_stride);
  const V r2 = load<V>(source + 2 * source_stride);
  const V r3 = load<V>(source + 3 * source_stride);
  const V low01 = low_lanes(r0, r1, lanes), high01 = high_lanes(r0, r1, lanes);
  const V low23 = low_lanes(r2, r3, lanes), high23 = high_lanes(r2, r3, lanes);
  const V columns[4] = {low_pairs(low01, low23, lanes), high_pairs(low01, low23, lanes),
                        low_pairs(high01, high23, lanes), high_pairs(high01, high23, lanes)};
  unroll<count>([&](auto d) {
    constexpr int quad = d / 4 * 4;
    store<T>(target + static_cast<int64_t>(d) * target_stride,
             static_cast<Quad>(__builtin_shufflevector(columns[d % 4], columns[d % 4], quad, quad + 1,
                                                       quad + 2, quad + 3)));
  });
}

/// How far ahead a factor is asked for while it is packed: rows where they are short, else bytes of each.
constexpr int64_t rows_ahead = 16;
constexpr int64_t bytes_ahead = 512;

/// The depth that is transposed at once.
template <class T>
constexpr int64_t transposed_depth = vector_lanes<T> < 4 ? 4 : vector_lanes<T>;

template <class T, class S>
void widen(T* target, const S* source, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = static_cast<T>(source[i]);
}

/// As many elements as are known to the compiler, which calls memcpy() for more than it likes.
template <int64_t count, class T>
[[gnu::always_inline]] inline void copy(T* target, const T* source) {
  constexpr int64_t quad = 16 / sizeof(T), lanes = vector_lanes<T>;
  using Part = std::conditional_t<count % lanes == 0, Vector<T>, typename VectorOf<T, quad>::Type>;
  constexpr int64_t step = sizeof(Part) / sizeof(T);
  unroll<count / step>([&](auto i) { store(target + i * step, load<Part>(source + i * step)); });
}

/// All panels at once: their lanes lie beside each other in each row of the source.
template <int64_t width, class T, class S>
void pack_contiguous_lanes(T* panels, Lanes<S> source, int64_t count, int64_t depth) {
  const int64_t whole = count / width * width;
  for (int64_t d = 0; d < depth; ++d) {
    const S* from = source.data + d * source.depth_stride;
    T* to = panels + d * width;
    for (int64_t lane = 0; lane < whole; lane += width) {
      prefetch(from + lane, rows_ahead * source.depth_stride * static_cast<int64_t>(sizeof(S)));
      prefetch(from + lane, rows_ahead * source.depth_stride * static_cast<int64_t>(sizeof(S)) + 64);
      if constexpr (std::same_as<T, S>)
        copy<width>(to + lane * depth, from + lane);
      else
        widen(to + lane * depth, from + lane, width);
    }
    for (int64_t lane = whole; whole < count && lane < whole + width; ++lane)
      to[whole * depth + lane - whole] = lane < count ? static_cast<T>(from[lane]) : T{0};
  }
}

/// panel[d][lane] for four lanes and d in [begin, end), both multiples of 4 and at most 64 bytes apart.
template <int64_t width, class T, class S>
void pack_four_lanes(T* panel, Lanes<S> source, int64_t begin, int64_t end) {
  constexpr int64_t line = 64 / sizeof(S);
  constexpr size_t at_once = transposed_depth<T>;
  [[maybe_unused]] T wide[4 * line];
  const T* from;
  int64_t stride;
  if constexpr (std::same_as<T, S>) {
    from = source.data + begin;
    stride = source.lane_stride;
  } else {
    for (int64_t lane = 0; lane < 4; ++lane)
      widen(wide + lane * line, source.from(lane).data + begin, end - begin);
    from = wide;
    stride = line;
  }
  panel += begin * width;
  for (int64_t lane = 0; lane < 4; ++lane) prefetch(source.from(lane).data + begin, bytes_ahead);
  const int64_t count = end - begin;
  int64_t d = 0;
  for (; d + transposed_depth<T> <= count; d += transposed_depth<T>)
    transpose_four<at_once>(panel + d * width, width, from + d, stride);
  for (; d < count; d += 4) transpose_four<4>(panel + d * width, width, from + d, stride);
}

template <int64_t width, class T, class S>
void pack_contiguous_depth(T* panel, Lanes<S> source, int64_t count, int64_t depth) {
  constexpr int64_t line = 64 / sizeof(S);  // a cache line of every lane is used up before the next one
  const int64_t whole_lanes = count / 4 * 4;
  const int64_t whole_depth = depth / 4 * 4;
  for (int64_t begin = 0; begin < whole_depth; begin += line) {
    const int64_t end = std::min(begin + line, whole_depth);
    for (int64_t lane = 0; lane < whole_lanes; lane += 4)
      pack_four_lanes<width>(panel + lane, source.from(lane), begin, end);
  }
  for (int64_t lane = 0; lane < width; ++lane) {
    const S* from = source.from(lane).data;
    for (int64_t d = lane < whole_lanes ? whole_depth : 0; d < depth; ++d)
      panel[d * width + lane] = lane < count ? static_cast<T>(from[d]) : T{0};
  }
}

template <int64_t width, class T, class S>
void pack(T* panels, Lanes<S> source, int64_t count, int64_t depth) {
  if (source.lane_stride == 1) return pack_contiguous_lanes<width>(panels, source, count, depth);
  for (int64_t lane = 0; lane < count; lane += width)
    pack_contiguous_depth<width>(panels + lane * depth, source.from(lane), std::min(count - lane, width),
                                 depth);
}

}  // namespace

template <class T, class S>
void pack_rows(T* panels, Lanes<S> source, int64_t count, int64_t depth) {
  pack<tile_rows>(panels, source, count, depth);
}

template <class T, class S>
void pack_columns(T* panels, Lanes<S> source, int64_t count, int64_t depth) {
  pack<tile_columns<T>>(panels, source, count, depth);
}

template <class T>
void unpack_columns(T* target, int64_t lane_stride, const T* panel, int64_t count, int64_t depth) {
  const int64_t whole_lanes = count / 4 * 4;
  const int64_t whole_depth = depth / 4 * 4;
  for (int64_t lane = 0; lane < whole_lanes; lane += 4)
    for (int64_t d = 0; d < whole_depth; d += 4)
      transpose_four<4>(target + lane * lane_stride + d, lane_stride, panel + d * tile_columns<T> + lane,
                        tile_columns<T>);
  for (int64_t lane = 0; lane < count; ++lane)
    for (int64_t d = lane < whole_lanes ? whole_depth : 0; d < depth; ++d)
      target[lane * lane_stride + d] = panel[d * tile_columns<T> + lane];
}

template <class T>
void multiply(T* tile, Left layout, const T* left, const T* right, int64_t rows, int64_t columns,
              int64_t depth, Store store) {
  const int64_t index = (rows - 1) / 4 * tile_vectors + (columns - 1) / vector_lanes<T>;
  const Block<T> block = (layout == Left::panel ? table<T, Left::panel> : table<T, Left::tile>)[index];
  const int64_t depth_stride = layout == Left::panel ? tile_rows : 1;
  bool add = store == Store::add;
  int64_t begin = 0;
  do {
    const int64_t length = std::min(depth - begin, depth_block);
    block(tile, left + begin * depth_stride, right + begin * tile_columns<T>, length, add);
    begin += length;
    add = true;
  } while (begin < depth);
}

template void pack_rows(float*, Lanes<float>, int64_t, int64_t);
template void pack_rows(double*, Lanes<double>, int64_t, int64_t);
template void pack_rows(float*, Lanes<bfloat16>, int64_t, int64_t);
template void pack_rows(float*, Lanes<float16>, int64_t, int64_t);
template void pack_columns(float*, Lanes<float>, int64_t, int64_t);
template void pack_columns(double*, Lanes<double>, int64_t, int64_t);
template void pack_columns(float*, Lanes<bfloat16>, int64_t, int64_t);
template void pack_columns(float*, Lanes<float16>, int64_t, int64_t);
template void unpack_columns(float*, int64_t, const float*, int64_t, int64_t);
template void unpack_columns(double*, int64_t, const double*, int64_t, int64_t);
template void multiply(float*, Left, const float*, const float*, int64_t, int64_t, int64_t, Store);
template void multiply(double*, Left, const double*, const double*, int64_t, int64_t, int64_t, Store);

}  // namespace lockstep::gemm
