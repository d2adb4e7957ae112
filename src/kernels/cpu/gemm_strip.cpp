// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <concepts>

#include "core/dtype.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_vector.h"

namespace lockstep::gemm {
namespace {

/// How much of the depth of a strip all rows meet before the next is read: 8 KiB, which stay in L1 beside
/// what passes through it on the way here. A multiple of a vector.
constexpr int64_t piece_depth = 16;

/// Rows whose sums are in registers at once, and how many vectors of each. So few rows that all their sums
/// are meet the right factor where it lies; for more, its rows would take the same sets of the cache.
#if defined(__AVX512F__)
constexpr size_t group_rows = 4;
constexpr size_t rows_in_place = 3;
#else
constexpr size_t group_rows = 2;
constexpr size_t rows_in_place = 1;
#endif
constexpr size_t strip_vectors = 8;
constexpr size_t vectors_of(size_t rows) { return rows <= rows_in_place ? strip_vectors : strip_vectors / 2; }

/// How far ahead of the sums a strip is asked for, in rows of the right factor and in bytes of a column of a
/// transposed one. The processor does not foresee strides of thousands of bytes.
constexpr int64_t rows_ahead = 16;
constexpr int64_t bytes_ahead = 512;

/// Asks for the cache line there. Reads nothing, so that the place may lie behind the matrix.
[[gnu::always_inline]] inline void prefetch(const void* first, int64_t bytes) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address for the processor alone
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(first) + bytes));
}

template <class T, size_t rows>
void accumulate(T* sums, const T* left, int64_t left_stride, const T* right, int64_t right_stride,
                int64_t depth, bool reads_ahead) {
  constexpr size_t vectors = vectors_of(rows);
  constexpr int64_t lanes = vector_lanes<T>;
  for (int64_t column = 0; column < strip_columns<T>; column += vectors * lanes) {
    Vector<T> sum[rows][vectors];
    unroll<rows * vectors>([&](auto i) {
      sum[i / vectors][i % vectors] =
          load<Vector<T>>(sums + i / vectors * strip_columns<T> + column + i % vectors * lanes);
    });
    const T* from = right + column;
    for (int64_t d = 0; d < depth; ++d, from += right_stride) {
      Vector<T> a[rows];
      unroll<rows>([&](auto row) { a[row] = broadcast(left[row * left_stride + d]); });
      unroll<vectors>([&](auto v) {
        const Vector<T> b = load<Vector<T>>(from + v * lanes);
        if (reads_ahead) prefetch(from + v * lanes, rows_ahead * right_stride * sizeof(T));
        unroll<rows>([&](auto row) { sum[row][v] = fused_multiply_add<T>(a[row], b, sum[row][v]); });
      });
    }
    unroll<rows * vectors>([&](auto i) {
      store(sums + i / vectors * strip_columns<T> + column + i % vectors * lanes,
            sum[i / vectors][i % vectors]);
    });
  }
}

template <class T, size_t... indices>
constexpr auto accumulators(std::index_sequence<indices...>) {
  return std::array{accumulate<T, indices + 1>...};
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
[[gnu::always_inline]] inline void transpose_floats(float* target, const float* source,
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
      float* to = target + (4 * quarter + d) * strip_columns<float>;
      store(to, _mm512_maskz_shuffle_ps(0xffff, low, high, 0x44));
      store(to + strip_columns<float>, _mm512_maskz_shuffle_ps(0xffff, low, high, 0xee));
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
  unroll<lanes>([&](auto i) { store(target + i * strip_columns<T>, rows[i]); });
}

/// piece[d][lane] for `count` lanes, and 0 for the others, which a strip needs.
template <class T, class S>
void pack_piece(T* piece, Lanes<S> source, int64_t count, int64_t depth) {
  constexpr int64_t width = strip_columns<T>;
  constexpr int64_t side = vector_lanes<T>;
  const bool is_transposed = source.lane_stride != 1;
  const int64_t square_lanes = is_transposed ? count / side * side : 0;
  const int64_t square_depth = is_transposed ? depth / side * side : 0;
  for (int64_t lane = 0; lane < square_lanes; lane += side)
    for (int64_t d = 0; d < square_depth; d += side)
      transpose_square(piece + d * width + lane, source.data + lane * source.lane_stride + d,
                       source.lane_stride);
  for (int64_t d = 0; d < depth; ++d) {
    T* row = piece + d * width;
    const S* from = source.data + d * source.depth_stride;
    if (!is_transposed)
      for (int64_t byte = 0; byte < count * static_cast<int64_t>(sizeof(S)); byte += 64)
        prefetch(from, rows_ahead * source.depth_stride * sizeof(S) + byte);
    if (!is_transposed && count == width) {
      for (int64_t lane = 0; lane < width; ++lane) row[lane] = static_cast<T>(from[lane]);
      continue;
    }
    for (int64_t lane = d < square_depth ? square_lanes : 0; lane < count; ++lane)
      row[lane] = static_cast<T>(from[lane * source.lane_stride]);
    std::fill(row + count, row + width, T{0});
  }
}

}  // namespace

template <class T, class S>
void multiply_strip(T* sums, const T* left, int64_t rows, Lanes<S> right, int64_t columns, int64_t depth) {
  constexpr int64_t width = strip_columns<T>;
  static constexpr auto of_rows = accumulators<T>(std::make_index_sequence<group_rows>{});
  alignas(64) T piece[piece_depth * width];
  alignas(64) T block[most_strip_rows * width];
  const bool is_in_place = std::same_as<S, T> && right.lane_stride == 1 && columns == width &&
                           rows <= static_cast<int64_t>(rows_in_place);
  std::fill_n(sums, rows * width, T{0});
  for (int64_t begin = 0; begin < depth; begin += piece_depth) {
    T* target = begin < depth_block ? sums : block;
    if (begin > 0 && begin % depth_block == 0) std::fill_n(block, rows * width, T{0});
    const Lanes<S> part{right.data + begin * right.depth_stride, right.lane_stride, right.depth_stride};
    const int64_t length = std::min(depth - begin, piece_depth);
    const T* from = piece;
    if constexpr (std::same_as<S, T>) from = is_in_place ? part.data : piece;
    if (!is_in_place) pack_piece(piece, part, columns, length);
    for (int64_t row = 0; row < rows; row += group_rows)
      of_rows[std::min<size_t>(rows - row, group_rows) - 1](
          target + row * width, left + row * depth + begin, depth, from,
          is_in_place ? right.depth_stride : width, length, is_in_place && row == 0);
    const bool ends_block = (begin + length) % depth_block == 0 || begin + length == depth;
    if (target == block && ends_block)
      for (int64_t i = 0; i < rows * width; ++i) sums[i] += block[i];
  }
}

template void multiply_strip(float*, const float*, int64_t, Lanes<float>, int64_t, int64_t);
template void multiply_strip(double*, const double*, int64_t, Lanes<double>, int64_t, int64_t);
template void multiply_strip(float*, const float*, int64_t, Lanes<bfloat16>, int64_t, int64_t);
template void multiply_strip(float*, const float*, int64_t, Lanes<float16>, int64_t, int64_t);

}  // namespace lockstep::gemm
