// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/cpu/gemm.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <utility>

#include "lockstep/core/dtype.h"
#include "lockstep/kernels/cpu/gemm_vector.h"

namespace lockstep::gemm {
namespace {

/// Strides of a left factor, in elements. Constant strides are known when a microkernel is compiled.
struct PanelStrides {
  static constexpr int64_t row = 1, depth = tile_rows;
};
template <class T>
struct TileStrides {
  static constexpr int64_t row = tile_columns<T>, depth = 1;
};
struct MatrixStrides {
  int64_t row;
  static constexpr int64_t depth = 1;
};

/// Multiplies the rows from `left` on into a part of a tile.
template <class T, class Strides, size_t rows, size_t vectors>
void multiply_block(T* tile, const T* left, Strides strides, const T* right, int64_t depth, Store mode) {
  Vector<T> sums[rows][vectors] = {};
  const auto place = [=](auto i) {
    return tile + i / vectors * tile_columns<T> + i % vectors * vector_lanes<T>;
  };
  if (mode == Store::chain)
    unroll<rows * vectors>([&](auto i) { sums[i / vectors][i % vectors] = load<Vector<T>>(place(i)); });
  for (int64_t d = 0; d < depth; ++d) {
    Vector<T> b[vectors];
    unroll<vectors>([&](auto v) { b[v] = load<Vector<T>>(right + v * vector_lanes<T>); });
    end_loads();
    unroll<rows>([&](auto row) {
      const Vector<T> a = broadcast(left[row * strides.row]);
      unroll<vectors>([&](auto v) { sums[row][v] = fused_multiply_add<T>(a, b[v], sums[row][v]); });
    });
    left += strides.depth;
    right += tile_columns<T>;
  }
  unroll<rows * vectors>([&](auto i) {
    const Vector<T> sum = sums[i / vectors][i % vectors];
    store(place(i), mode == Store::add ? add<T>(load<Vector<T>>(place(i)), sum) : sum);
  });
}

template <class T, class Strides>
using Block = void (*)(T*, const T*, Strides, const T*, int64_t, Store);

/// One microkernel for every tile of 4, 8, ... rows and 1, 2, ... vectors.
template <class T, class Strides, size_t... indices>
constexpr std::array<Block<T, Strides>, sizeof...(indices)> blocks(std::index_sequence<indices...>) {
  return {multiply_block<T, Strides, 4 * (indices / tile_vectors + 1), indices % tile_vectors + 1>...};
}

template <class T, class Strides>
constexpr auto table = blocks<T, Strides>(std::make_index_sequence<tile_rows / 4 * tile_vectors>{});

template <class T, class Strides>
void multiply(T* tile, const T* left, Strides strides, const T* right, int64_t rows, int64_t columns,
              int64_t depth, Store mode) {
  const int64_t index = (rows - 1) / 4 * tile_vectors + (columns - 1) / vector_lanes<T>;
  const Block<T, Strides> block = table<T, Strides>[index];
  int64_t begin = 0;
  do {
    const int64_t length = std::min(depth - begin, depth_block);
    block(tile, left + begin * strides.depth, strides, right + begin * tile_columns<T>, length, mode);
    begin += length;
    if (mode == Store::overwrite) mode = Store::add;
  } while (begin < depth);
}

template <class T>
void transpose_4x4(T* target, int64_t target_stride, const T* source, int64_t source_stride) {
  using Quad = typename VectorOf<T, 4>::Type;
  const Quad r0 = load<Quad>(source);
  const Quad r1 = load<Quad>(source + source_stride);
  const Quad r2 = load<Quad>(source + 2 * source_stride);
  const Quad r3 = load<Quad>(source + 3 * source_stride);
  const Quad low01 = shuffle<0, 4, 1, 5>(r0, r1);
  const Quad high01 = shuffle<2, 6, 3, 7>(r0, r1);
  const Quad low23 = shuffle<0, 4, 1, 5>(r2, r3);
  const Quad high23 = shuffle<2, 6, 3, 7>(r2, r3);
  store(target, shuffle<0, 1, 4, 5>(low01, low23));
  store(target + target_stride, shuffle<2, 3, 6, 7>(low01, low23));
  store(target + 2 * target_stride, shuffle<0, 1, 4, 5>(high01, high23));
  store(target + 3 * target_stride, shuffle<2, 3, 6, 7>(high01, high23));
}

template <class T, class S>
void widen(T* target, const S* source, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = static_cast<T>(source[i]);
}

/// Copies some tens of elements by vectors. For a plain loop the compiler would call memcpy().
template <int64_t count, class T>
[[gnu::always_inline]] inline void copy(T* target, const T* source) {
  constexpr int64_t lanes = vector_lanes<T>;
  using Part = std::conditional_t<count % lanes == 0, Vector<T>, typename VectorOf<T, 4>::Type>;
  constexpr int64_t step = sizeof(Part) / sizeof(T);
  unroll<count / step>([&](auto i) { store(target + i * step, load<Part>(source + i * step)); });
}

/// Packs all panels at once. Their lanes are contiguous in each row of the source.
template <int64_t width, class T, class S>
void pack_contiguous_lanes(T* panels, Lanes<S> source, int64_t count, int64_t depth) {
  const int64_t whole = count / width * width;
  for (int64_t d = 0; d < depth; ++d) {
    const S* from = source.data + d * source.depth_stride;
    T* to = panels + d * width;
    for (int64_t lane = 0; lane < whole; lane += width)
      if constexpr (std::same_as<T, S>)
        copy<width>(to + lane * depth, from + lane);
      else
        widen(to + lane * depth, from + lane, width);
    for (int64_t lane = whole; whole < count && lane < whole + width; ++lane)
      to[whole * depth + lane - whole] = lane < count ? static_cast<T>(from[lane]) : T{0};
  }
}

/// Packs panel[d][lane] for four lanes and d in [begin, end). begin and end are multiples of 4 and at most 64
/// bytes apart.
template <int64_t width, class T, class S>
void pack_four_lanes(T* panel, Lanes<S> source, int64_t begin, int64_t end) {
  constexpr int64_t bytes_ahead = 512;
  for (int64_t lane = 0; lane < 4; ++lane) prefetch(source.from(lane).data + begin, bytes_ahead);
  if constexpr (std::same_as<T, S>) {
    for (int64_t d = begin; d < end; d += 4)
      transpose_4x4(panel + d * width, width, source.data + d, source.lane_stride);
  } else {
    constexpr int64_t line = 64 / sizeof(S);
    T wide[4 * line];
    for (int64_t lane = 0; lane < 4; ++lane)
      widen(wide + lane * line, source.from(lane).data + begin, end - begin);
    for (int64_t d = begin; d < end; d += 4)
      transpose_4x4(panel + d * width, width, wide + (d - begin), line);
  }
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
      transpose_4x4(target + lane * lane_stride + d, lane_stride, panel + d * tile_columns<T> + lane,
                    tile_columns<T>);
  for (int64_t lane = 0; lane < count; ++lane)
    for (int64_t d = lane < whole_lanes ? whole_depth : 0; d < depth; ++d)
      target[lane * lane_stride + d] = panel[d * tile_columns<T> + lane];
}

template <class T>
void multiply(T* tile, Left layout, const T* left, const T* right, int64_t rows, int64_t columns,
              int64_t depth, Store store) {
  if (layout == Left::panel)
    multiply(tile, left, PanelStrides{}, right, rows, columns, depth, store);
  else
    multiply(tile, left, TileStrides<T>{}, right, rows, columns, depth, store);
}

template <class T>
void multiply_in_place(T* tile, const T* left, int64_t left_stride, const T* right, int64_t rows,
                       int64_t columns, int64_t depth, Store store) {
  multiply(tile, left, MatrixStrides{left_stride}, right, rows, columns, depth, store);
}

template <class T>
void multiply_lanes(T* sums, const T* left, const T* right, int64_t depth) {
  constexpr size_t vectors = tile_vectors;
  Vector<T> chains[vectors] = {};
  for (int64_t d = 0; d < depth; ++d, left += tile_columns<T>, right += tile_columns<T>)
    unroll<vectors>([&](auto v) {
      chains[v] = fused_multiply_add<T>(load<Vector<T>>(left + v * vector_lanes<T>),
                                        load<Vector<T>>(right + v * vector_lanes<T>), chains[v]);
    });
  unroll<vectors>([&](auto v) { store(sums + v * vector_lanes<T>, chains[v]); });
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
template void multiply_lanes(float*, const float*, const float*, int64_t);
template void multiply_lanes(double*, const double*, const double*, int64_t);
template void multiply_in_place(float*, const float*, int64_t, const float*, int64_t, int64_t, int64_t,
                                Store);
template void multiply_in_place(double*, const double*, int64_t, const double*, int64_t, int64_t, int64_t,
                                Store);

}  // namespace lockstep::gemm
