// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <concepts>

#include "core/dtype.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_vector.h"

namespace lockstep::gemm {
namespace {

/// How much of the depth all rows meet before the next is read, so that it stays in L1: of a whole strip, and
/// of the few columns of a transposed one that are read at a time, which lie in as many places of memory.
constexpr int64_t piece_depth = 32;
constexpr int64_t transposed_depth = 16;
constexpr size_t transposed_vectors = 2;

/// Rows whose sums are in registers at once. So few that the sums of a whole strip are meet the right factor
/// where it lies; for more, its rows would take the same sets of the cache.
#if defined(__AVX512F__)
constexpr size_t group_rows = 4;
constexpr size_t rows_in_place = 3;
#else
constexpr size_t group_rows = 2;
constexpr size_t rows_in_place = 1;
#endif
constexpr size_t strip_vectors = 8;

/// How far ahead of the sums a strip is asked for, in rows of the right factor and in bytes of a column of a
/// transposed one. The processor does not foresee strides of thousands of bytes.
constexpr int64_t rows_ahead = 16;
constexpr int64_t bytes_ahead = 512;

/// Asks for the cache line there. Reads nothing, so that the place may lie behind the matrix.
[[gnu::always_inline]] inline void prefetch(const void* first, int64_t bytes) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address for the processor alone
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(first) + bytes));
}

/// Some rows of a left factor, and a piece of the right one with the columns of as many vectors.
template <class T>
struct Operands {
  const T* left;
  int64_t left_stride;
  const T* right;
  int64_t right_stride;
  int64_t depth;
  bool reads_ahead;

  Operands from_row(int64_t row) const {
    return {left + row * left_stride, left_stride, right, right_stride, depth, reads_ahead};
  }
};

/// sums[row][column] += left . right, going on with the chain of each.
template <class T, size_t rows, size_t vectors>
void accumulate_vectors(T* sums, const Operands<T>& in) {
  constexpr int64_t lanes = vector_lanes<T>;
  Vector<T> sum[rows][vectors];
  const auto place = [&](auto i) { return sums + i / vectors * strip_columns<T> + i % vectors * lanes; };
  unroll<rows * vectors>([&](auto i) { sum[i / vectors][i % vectors] = load<Vector<T>>(place(i)); });
  const T* from = in.right;
  for (int64_t d = 0; d < in.depth; ++d, from += in.right_stride) {
    Vector<T> a[rows];
    unroll<rows>([&](auto row) { a[row] = broadcast(in.left[row * in.left_stride + d]); });
    unroll<vectors>([&](auto v) {
      const Vector<T> b = load<Vector<T>>(from + v * lanes);
      if (in.reads_ahead) prefetch(from + v * lanes, rows_ahead * in.right_stride * sizeof(T));
      unroll<rows>([&](auto row) { sum[row][v] = fused_multiply_add<T>(a[row], b, sum[row][v]); });
    });
  }
  unroll<rows * vectors>([&](auto i) { store(place(i), sum[i / vectors][i % vectors]); });
}

/// The same for `vectors` vectors of columns, in halves where the rows are too many for all.
template <class T, size_t rows, size_t vectors>
void accumulate_group(T* sums, Operands<T> in) {
  constexpr size_t at_once = rows <= rows_in_place ? vectors : std::min(vectors, strip_vectors / 2);
  for (size_t v = 0; v < vectors; v += at_once) {
    accumulate_vectors<T, rows, at_once>(sums, in);
    sums += at_once * vector_lanes<T>;
    in.right += at_once * vector_lanes<T>;
  }
}

template <class T, size_t vectors, size_t... indices>
constexpr auto groups(std::index_sequence<indices...>) {
  return std::array{accumulate_group<T, indices + 1, vectors>...};
}

/// The same for any number of rows.
template <size_t vectors, class T>
void accumulate(T* sums, int64_t rows, const Operands<T>& in) {
  static constexpr auto of_rows = groups<T, vectors>(std::make_index_sequence<group_rows>{});
  for (int64_t row = 0; row < rows; row += group_rows)
    of_rows[std::min<size_t>(rows - row, group_rows) - 1](sums + row * strip_columns<T>, in.from_row(row));
}

/// Lane l of a where bit `step` of l is not set, else lane l - step of b; or the same of the next `step`.
template <int64_t step, class V, size_t... l>
[[gnu::always_inline]] inline void exchange(V& a, V& b, std::index_sequence<l...>) {
  constexpr size_t lanes = sizeof...(l);
  const V low = __builtin_shufflevector(a, b, ((l & step) == 0 ? l : lanes + l - step)...);
  b = __builtin_shufflevector(a, b, ((l & step) == 0 ? l + step : lanes + l)...);
  a = low;
}

#if defined(__AVX512F__)
/// Sixteen floats: four from each of four rows that are `distance` apart. The processor puts them together
/// as it loads them, which leaves the shuffles of a square at half.
[[gnu::always_inline]] inline Vector<float> load_quads(const float* source, int64_t distance) {
  const auto quad = [&](int64_t row) { return _mm_loadu_ps(source + row * distance); };
  __m512 quads = _mm512_maskz_broadcast_f32x4(0xffff, quad(0));
  quads = _mm512_mask_broadcast_f32x4(quads, 0x00f0, quad(1));
  quads = _mm512_mask_broadcast_f32x4(quads, 0x0f00, quad(2));
  return _mm512_mask_broadcast_f32x4(quads, 0xf000, quad(3));
}

/// The same as below, four columns after the other.
[[gnu::always_inline]] inline void transpose_floats(float* target, int64_t target_stride, const float* source,
                                                    int64_t source_stride) {
  unroll<16>([&](auto i) { prefetch(source + i * source_stride, bytes_ahead); });
  unroll<4>([&](auto quarter) {
    Vector<float> rows[4];
    unroll<4>(
        [&](auto i) { rows[i] = load_quads(source + i * source_stride + 4 * quarter, 4 * source_stride); });
    // With masks, since gcc 12 takes the undefined register of the others for a mistake.
    const __m512 low01 = _mm512_maskz_unpacklo_ps(0xffff, rows[0], rows[1]);
    const __m512 high01 = _mm512_maskz_unpackhi_ps(0xffff, rows[0], rows[1]);
    const __m512 low23 = _mm512_maskz_unpacklo_ps(0xffff, rows[2], rows[3]);
    const __m512 high23 = _mm512_maskz_unpackhi_ps(0xffff, rows[2], rows[3]);
    const auto put = [&](int64_t d, __m512 low, __m512 high) {
      float* to = target + (4 * quarter + d) * target_stride;
      store(to, _mm512_maskz_shuffle_ps(0xffff, low, high, 0x44));
      store(to + target_stride, _mm512_maskz_shuffle_ps(0xffff, low, high, 0xee));
    };
    put(0, low01, low23);
    put(2, high01, high23);
  });
}
#endif

/// target[d][lane] = source[lane][d] for a square as wide as a vector, in registers.
template <class T, class S>
[[gnu::always_inline]] inline void transpose_square(T* target, int64_t target_stride, const S* source,
                                                    int64_t source_stride) {
#if defined(__AVX512F__)
  if constexpr (std::same_as<T, float> && std::same_as<S, float>)
    return transpose_floats(target, target_stride, source, source_stride);
#endif
  constexpr size_t lanes = vector_lanes<T>;
  Vector<T> rows[lanes];
  unroll<lanes>([&](auto i) {
    if constexpr (std::same_as<T, S>) {
      rows[i] = load<Vector<T>>(source + i * source_stride);
    } else {
      T wide[lanes];
      for (size_t lane = 0; lane < lanes; ++lane)
        wide[lane] = static_cast<T>(source[i * source_stride + lane]);
      rows[i] = load<Vector<T>>(wide);
    }
    prefetch(source + i * source_stride, bytes_ahead);
  });
  const auto exchange_at = [&]<int64_t step>() {
    unroll<lanes>([&](auto i) {
      if constexpr ((i & step) == 0)
        exchange<step>(rows[i], rows[i + step], std::make_index_sequence<lanes>{});
    });
  };
  if constexpr (lanes > 8) exchange_at.template operator()<8>();
  if constexpr (lanes > 4) exchange_at.template operator()<4>();
  if constexpr (lanes > 2) exchange_at.template operator()<2>();
  exchange_at.template operator()<1>();
  unroll<lanes>([&](auto i) { store(target + i * target_stride, rows[i]); });
}

/// piece[d][lane] for `count` of `width` lanes, and 0 for the others.
template <int64_t width, class T, class S>
void pack_transposed(T* piece, Lanes<S> source, int64_t count, int64_t depth) {
  constexpr int64_t side = vector_lanes<T>;
  const int64_t square_lanes = count / side * side, square_depth = depth / side * side;
  for (int64_t lane = 0; lane < square_lanes; lane += side)
    for (int64_t d = 0; d < square_depth; d += side)
      transpose_square(piece + d * width + lane, width, source.from(lane).data + d, source.lane_stride);
  for (int64_t d = 0; d < depth; ++d) {
    T* row = piece + d * width;
    for (int64_t lane = d < square_depth ? square_lanes : 0; lane < count; ++lane)
      row[lane] = static_cast<T>(source.data[lane * source.lane_stride + d]);
    std::fill(row + count, row + width, T{0});
  }
}

/// The same for lanes that lie next to each other.
template <int64_t width, class T, class S>
void pack_rows_of_strip(T* piece, Lanes<S> source, int64_t count, int64_t depth) {
  for (int64_t d = 0; d < depth; ++d) {
    T* row = piece + d * width;
    const S* from = source.data + d * source.depth_stride;
    for (int64_t byte = 0; byte < count * static_cast<int64_t>(sizeof(S)); byte += 64)
      prefetch(from, rows_ahead * source.depth_stride * sizeof(S) + byte);
    if (count == width)
      for (int64_t lane = 0; lane < width; ++lane) row[lane] = static_cast<T>(from[lane]);
    else
      for (int64_t lane = 0; lane < width; ++lane)
        row[lane] = lane < count ? static_cast<T>(from[lane]) : T{0};
  }
}

/// Calls body(target, begin, length) for all pieces of the depth: target [rows][width] is where the sums of a
/// block are to be continued. The blocks are added up in order.
template <int64_t width, class T, class Body>
void for_each_piece(T* sums, int64_t rows, int64_t depth, int64_t length_of_piece, Body&& body) {
  alignas(64) T block[most_strip_rows * strip_columns<T>];
  const auto clear = [&](T* target) {
    for (int64_t row = 0; row < rows; ++row) std::fill_n(target + row * strip_columns<T>, width, T{0});
  };
  clear(sums);
  for (int64_t begin = 0; begin < depth; begin += length_of_piece) {
    T* target = begin < depth_block ? sums : block;
    if (begin > 0 && begin % depth_block == 0) clear(block);
    const int64_t length = std::min(depth - begin, length_of_piece);
    body(target, begin, length);
    const bool ends_block = (begin + length) % depth_block == 0 || begin + length == depth;
    if (target == sums || !ends_block) continue;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = row * strip_columns<T>; i < row * strip_columns<T> + width; ++i) sums[i] += block[i];
  }
}

template <class T, class S>
void multiply_rows(T* sums, const T* left, int64_t rows, Lanes<S> right, int64_t columns, int64_t depth) {
  constexpr int64_t width = strip_columns<T>;
  alignas(64) T piece[piece_depth * width];
  const bool is_in_place =
      std::same_as<S, T> && columns == width && rows <= static_cast<int64_t>(rows_in_place);
  for_each_piece<width>(sums, rows, depth, piece_depth, [&](T* target, int64_t begin, int64_t length) {
    const Lanes<S> part{right.data + begin * right.depth_stride, right.lane_stride, right.depth_stride};
    Operands<T> in{left + begin, depth, piece, width, length, false};
    if (!is_in_place) pack_rows_of_strip<width>(piece, part, columns, length);
    if constexpr (std::same_as<S, T>)
      if (is_in_place) in = {left + begin, depth, part.data, right.depth_stride, length, true};
    accumulate<strip_vectors>(target, rows, in);
  });
}

/// A few columns at a time over the whole depth: each is a stream of memory.
template <class T, class S>
void multiply_transposed(T* sums, const T* left, int64_t rows, Lanes<S> right, int64_t columns,
                         int64_t depth) {
  constexpr int64_t width = transposed_vectors * vector_lanes<T>;
  alignas(64) T piece[transposed_depth * width];
  for (int64_t column = 0; column < columns; column += width) {
    const Lanes<S> lanes = right.from(column);
    const int64_t count = std::min(columns - column, width);
    for_each_piece<width>(
        sums + column, rows, depth, transposed_depth, [&](T* target, int64_t begin, int64_t length) {
          pack_transposed<width>(piece, Lanes<S>{lanes.data + begin, lanes.lane_stride, 1}, count, length);
          accumulate<transposed_vectors>(target, rows,
                                         Operands<T>{left + begin, depth, piece, width, length, false});
        });
  }
}

}  // namespace

template <class T, class S>
void multiply_strip(T* sums, const T* left, int64_t rows, Lanes<S> right, int64_t columns, int64_t depth) {
  if (right.lane_stride == 1)
    multiply_rows(sums, left, rows, right, columns, depth);
  else
    multiply_transposed(sums, left, rows, right, columns, depth);
}

template void multiply_strip(float*, const float*, int64_t, Lanes<float>, int64_t, int64_t);
template void multiply_strip(double*, const double*, int64_t, Lanes<double>, int64_t, int64_t);
template void multiply_strip(float*, const float*, int64_t, Lanes<bfloat16>, int64_t, int64_t);
template void multiply_strip(float*, const float*, int64_t, Lanes<float16>, int64_t, int64_t);

}  // namespace lockstep::gemm
