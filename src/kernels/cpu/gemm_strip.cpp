// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <concepts>

#include "lockstep/core/dtype.h"
#include "lockstep/kernels/cpu/flush_subnormals.h"
#include "lockstep/kernels/cpu/gemm.h"
#include "lockstep/kernels/cpu/gemm_vector.h"

namespace lockstep::gemm {
namespace {

/// Number of rows of the right factor that are read side by side. The processor predicts the reads of each
/// row, but does not prefetch enough for a single one.
constexpr int64_t rows_at_once = 16;

/// Rows of the left factor that are processed at once, and registers for their sums. A whole strip of a row
/// fits.
constexpr int64_t group_rows = vector_bytes == 64 ? 4 : 2;
constexpr int64_t sum_registers = vector_bytes == 64 ? 24 : 12;
constexpr int64_t strip_vectors = strip_columns<float> / vector_lanes<float>;  // equal for every type

/// Some rows of a left factor and a piece of the right one. The piece has whole vectors of columns.
template <class T>
struct Operands {
  const T* left;
  int64_t left_stride;
  const T* right;
  int64_t right_stride;
  int64_t depth;

  Operands from_row(int64_t row) const {
    return {left + row * left_stride, left_stride, right, right_stride, depth};
  }
};

/// sums[rows][vectors] += left . right for `at_once` of the vectors, from `first` on. Each sum continues its
/// chain.
template <class T, size_t rows, size_t vectors, size_t at_once>
[[gnu::always_inline]] inline void accumulate_vectors(T* sums, const Operands<T>& in, size_t first) {
  constexpr int64_t lanes = vector_lanes<T>;
  Vector<T> sum[rows][at_once];
  const auto place = [&](auto i) { return sums + (i / at_once * vectors + first + i % at_once) * lanes; };
  unroll<rows * at_once>([&](auto i) { sum[i / at_once][i % at_once] = load<Vector<T>>(place(i)); });
  const T* from = in.right + first * lanes;
  for (int64_t d = 0; d < in.depth; ++d, from += in.right_stride) {
    Vector<T> a[rows];
    unroll<rows>([&](auto row) { a[row] = broadcast(in.left[row * in.left_stride + d]); });
    unroll<at_once>([&](auto v) {
      const Vector<T> b = load<Vector<T>>(from + v * lanes);
      unroll<rows>([&](auto row) { sum[row][v] = fused_multiply_add<T>(a[row], b, sum[row][v]); });
    });
  }
  unroll<rows * at_once>([&](auto i) { store(place(i), sum[i / at_once][i % at_once]); });
}

/// sums[rows][vectors] += left . right for all vectors, in steps for which there are registers.
template <class T, size_t rows, size_t vectors>
void accumulate_group(T* sums, const Operands<T>& in) {
  constexpr size_t at_once = std::min(vectors, std::bit_floor(sum_registers / rows));
  for (size_t first = 0; first < vectors; first += at_once)
    accumulate_vectors<T, rows, vectors, at_once>(sums, in, first);
}

template <class T, size_t vectors, size_t... indices>
constexpr auto groups(std::index_sequence<indices...>) {
  return std::array{accumulate_group<T, indices + 1, vectors>...};
}

/// sums[rows][vectors] += left . right for any number of rows.
template <size_t vectors, class T>
void accumulate(T* sums, int64_t rows, const Operands<T>& in) {
  static constexpr auto of_rows = groups<T, vectors>(std::make_index_sequence<group_rows>{});
  constexpr int64_t width = vectors * vector_lanes<T>;
  for (int64_t row = 0; row < rows; row += group_rows)
    of_rows[std::min<size_t>(rows - row, group_rows) - 1](sums + row * width, in.from_row(row));
}

/// Exchanges lanes of a and b. In lanes l without bit `step`, a keeps its lane and b receives lane l + step
/// of a. In other lanes a receives lane l - step of b and b keeps its lane.
template <int64_t step, class V, size_t... l>
[[gnu::always_inline]] inline void exchange(V& a, V& b, std::index_sequence<l...>) {
  constexpr size_t lanes = sizeof...(l);
  const V low = shuffle<((l & step) == 0 ? l : lanes + l - step)...>(a, b);
  b = shuffle<((l & step) == 0 ? l + step : lanes + l)...>(a, b);
  a = low;
}

#if defined(__AVX512F__)
/// Loads sixteen floats: four from each of four rows that are `distance` apart. The processor combines the
/// rows as it loads them. So a square needs only half of its shuffles.
[[gnu::always_inline]] inline Vector<float> load_quads(const float* source, int64_t distance) {
  const auto quad = [&](int64_t row) { return _mm_loadu_ps(source + row * distance); };
  __m512 quads = _mm512_maskz_broadcast_f32x4(0xffff, quad(0));
  quads = _mm512_mask_broadcast_f32x4(quads, 0x00f0, quad(1));
  quads = _mm512_mask_broadcast_f32x4(quads, 0x0f00, quad(2));
  return _mm512_mask_broadcast_f32x4(quads, 0xf000, quad(3));
}

/// Transposes a square of 16 x 16 floats, four columns after the other.
[[gnu::always_inline]] inline void transpose_floats(float* target, const float* source,
                                                    int64_t source_stride) {
  unroll<4>([&](auto quarter) {
    Vector<float> rows[4];
    unroll<4>(
        [&](auto i) { rows[i] = load_quads(source + i * source_stride + 4 * quarter, 4 * source_stride); });
    // Masked intrinsics: gcc 12 warns of the undefined register in the others.
    const __m512 low01 = _mm512_maskz_unpacklo_ps(0xffff, rows[0], rows[1]);
    const __m512 high01 = _mm512_maskz_unpackhi_ps(0xffff, rows[0], rows[1]);
    const __m512 low23 = _mm512_maskz_unpacklo_ps(0xffff, rows[2], rows[3]);
    const __m512 high23 = _mm512_maskz_unpackhi_ps(0xffff, rows[2], rows[3]);
    const auto put = [&](int64_t d, __m512 low, __m512 high) {
      float* to = target + (4 * quarter + d) * 16;
      store(to, _mm512_maskz_shuffle_ps(0xffff, low, high, 0x44));
      store(to + 16, _mm512_maskz_shuffle_ps(0xffff, low, high, 0xee));
    };
    put(0, low01, low23);
    put(2, high01, high23);
  });
}
#endif

/// target[d][lane] = source[lane][d] for a square as wide as a vector, in registers.
template <class T, class S>
[[gnu::always_inline]] inline void transpose_square(T* target, const S* source, int64_t source_stride) {
#if defined(__AVX512F__)
  if constexpr (std::same_as<T, float> && std::same_as<S, float>)
    return transpose_floats(target, source, source_stride);
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
  unroll<lanes>([&](auto i) { store(target + i * lanes, rows[i]); });
}

/// Packs piece[d][lane] for `count` lanes and 0 for the others. They are at most the lanes of a vector.
template <class T, class S>
void pack_transposed(T* piece, Lanes<S> source, int64_t count, int64_t depth) {
  constexpr int64_t side = vector_lanes<T>;
  if (count == side && depth == side) return transpose_square(piece, source.data, source.lane_stride);
  for (int64_t d = 0; d < depth; ++d)
    for (int64_t lane = 0; lane < side; ++lane)
      piece[d * side + lane] =
          lane < count ? static_cast<T>(source.data[lane * source.lane_stride + d]) : T{0};
}

/// Packs piece[d][lane] for `count` contiguous lanes of a strip and 0 for the others. Prefetches the piece
/// below.
template <class T, class S>
void pack_strip(T* piece, Lanes<S> source, int64_t count, int64_t depth) {
  constexpr int64_t width = strip_columns<T>, size = sizeof(S);
  for (int64_t d = 0; d < depth; ++d) {
    T* row = piece + d * width;
    const S* from = source.data + d * source.depth_stride;
    for (int64_t byte = 0; byte < width * size; byte += 64)
      prefetch(from, rows_at_once * source.depth_stride * size + byte);
    if (count == width)
      for (int64_t lane = 0; lane < width; ++lane) row[lane] = static_cast<T>(from[lane]);
    else
      for (int64_t lane = 0; lane < width; ++lane)
        row[lane] = lane < count ? static_cast<T>(from[lane]) : T{0};
  }
}

/// Prefetches as much of the next columns as a square of these columns has. So all squares together prefetch
/// all of it. The prefetches form streams of two columns each, since the processor reads more at a time from
/// several streams than from one. If the next columns do not follow these in memory, the prefetches are
/// useless but harmless. The loops are plain, because gcc 12 drops a lambda that only prefetches.
template <class T, class S>
[[gnu::always_inline]] inline void ask_for_next(const Lanes<S>& columns, int64_t begin) {
  constexpr int64_t width = vector_lanes<T>, size = sizeof(S), bytes = 2 * width * size;
  for (int64_t column = width; column < 2 * width; column += 2)
    for (int64_t byte = 0; byte < bytes; byte += 64)
      prefetch(columns.data, (column * columns.lane_stride + 2 * begin) * size + byte);
}

}  // namespace

template <class T, class S>
void multiply_strips(T* sums, const T* left, int64_t left_stride, int64_t rows, Lanes<S> right,
                     int64_t columns, int64_t depth) {
  const FlushSubnormals<S> flush;
  constexpr int64_t width = strip_columns<T>;
  // In place only if the sums of all rows fit into registers. Otherwise each cache line would be read again,
  // from wherever it is by then.
  const bool in_place = std::same_as<S, T> && rows * strip_vectors <= sum_registers;
  alignas(64) T piece[rows_at_once * width];
  std::fill_n(sums, (columns + width - 1) / width * width * rows, T{0});
  for (int64_t begin = 0; begin < depth; begin += rows_at_once) {
    const int64_t length = std::min(depth - begin, rows_at_once);
    for (int64_t column = 0; column < columns; column += width) {
      const S* from = right.data + begin * right.depth_stride + column;
      const int64_t count = std::min(columns - column, width);
      Operands<T> in{left + begin, left_stride, piece, width, length};
      if constexpr (std::same_as<S, T>)
        if (in_place && count == width) in = {left + begin, left_stride, from, right.depth_stride, length};
      if (in.right == piece) pack_strip(piece, Lanes<S>{from, 1, right.depth_stride}, count, length);
      accumulate<strip_vectors>(sums + column * rows, rows, in);
    }
  }
}

template <class T, class S>
void multiply_transposed(T* sums, const T* left, int64_t rows, Lanes<S> right, int64_t columns,
                         int64_t depth) {
  const FlushSubnormals<S> flush;
  constexpr int64_t width = vector_lanes<T>;
  alignas(64) T pieces[2][width * width];
  alignas(64) T block[most_strip_rows * width];
  std::fill_n(sums, rows * width, T{0});
  for (int64_t first = 0; first < depth; first += depth_block) {
    T* target = first == 0 ? sums : block;
    const int64_t end = std::min(first + depth_block, depth);
    if (first > 0) std::fill_n(block, rows * width, T{0});
    const auto length_at = [&](int64_t begin) { return std::min(end - begin, width); };
    const auto pack = [&](int64_t begin) {
      ask_for_next<T>(right, begin);
      pack_transposed(pieces[begin / width % 2], Lanes<S>{right.data + begin, right.lane_stride, 1}, columns,
                      length_at(begin));
    };
    // A chain of sums waits for each of its additions. Meanwhile the processor packs the next square.
    pack(first);
    for (int64_t begin = first; begin < end; begin += width) {
      if (begin + width < end) pack(begin + width);
      const T* piece = pieces[begin / width % 2];
      accumulate<1>(target, rows, Operands<T>{left + begin, depth, piece, width, length_at(begin)});
    }
    if (first > 0)
      for (int64_t i = 0; i < rows * width; i += width)
        store(sums + i, add<T>(load<Vector<T>>(sums + i), load<Vector<T>>(block + i)));
  }
}

template void multiply_strips(float*, const float*, int64_t, int64_t, Lanes<float>, int64_t, int64_t);
template void multiply_strips(double*, const double*, int64_t, int64_t, Lanes<double>, int64_t, int64_t);
template void multiply_strips(float*, const float*, int64_t, int64_t, Lanes<bfloat16>, int64_t, int64_t);
template void multiply_strips(float*, const float*, int64_t, int64_t, Lanes<float16>, int64_t, int64_t);

template void multiply_transposed(float*, const float*, int64_t, Lanes<float>, int64_t, int64_t);
template void multiply_transposed(double*, const double*, int64_t, Lanes<double>, int64_t, int64_t);
template void multiply_transposed(float*, const float*, int64_t, Lanes<bfloat16>, int64_t, int64_t);
template void multiply_transposed(float*, const float*, int64_t, Lanes<float16>, int64_t, int64_t);

}  // namespace lockstep::gemm
