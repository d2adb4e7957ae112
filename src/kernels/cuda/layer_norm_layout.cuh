// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/device/pack.cuh"
#include "kernels/cuda/device/reduce.cuh"

namespace lockstep::cuda {

/// The distribution of a row over the threads of a block. Unpacked rows do not fill 16-byte pieces, or do not
/// begin at one. They are distributed like packed rows but accessed element by element, so alignment does not
/// change the bits.
template <class Type, int warps_per_row, int elements_per_thread, bool is_packed>
struct RowLayout {
  using T = Type;
  static constexpr int warps = warps_per_row;
  static constexpr int elements = elements_per_thread;
  static constexpr bool packed = is_packed;
  static constexpr int row_threads = 32 * warps;
  static constexpr int rows_at_once = warps == 1 ? 4 : 1;
  static constexpr int threads = row_threads * rows_at_once;
  static constexpr int width = Pack<T>::size;
  static constexpr int pieces = elements / width;
  /// A warp on its own row needs no barriers. It loads the next row early and keeps the values that all rows
  /// need.
  static constexpr bool runs_ahead = packed && warps == 1;
  /// Blocks of the backward that should share a multiprocessor, as far as registers allow.
  static constexpr int backward_blocks = warps > 1 || elements > 24 ? 1 : (sizeof(T) == 2 ? 3 : 2);
  using Row = Pack<T>[pieces];

  /// Returns the first column of a thread's piece.
  static LOCKSTEP_DEVICE int column(int piece) {
    return (piece * row_threads + static_cast<int>(threadIdx.x) % row_threads) * width;
  }
  static LOCKSTEP_DEVICE bool leads_row() { return threadIdx.x % row_threads == 0; }
  /// Returns which of the rows that the block handles at once is this thread's.
  static LOCKSTEP_DEVICE int row_in_block() { return static_cast<int>(threadIdx.x) / row_threads; }
};

/// Loads one of this thread's pieces of a row, with zeros beyond the row's end.
template <class L>
LOCKSTEP_DEVICE Pack<typename L::T> load_piece(const typename L::T* from, int piece, int columns) {
  const int column = L::column(piece);
  Pack<typename L::T> values;
  if constexpr (L::packed) {
    if (column < columns) values = load_pack(from + column);
  } else {
#pragma unroll
    for (int i = 0; i < L::width; ++i)
      if (column + i < columns) values.put(i, from[column + i]);
  }
  return values;
}

template <class L>
LOCKSTEP_DEVICE void load_row(typename L::Row& row, const typename L::T* from, int columns) {
#pragma unroll
  for (int p = 0; p < L::pieces; ++p) row[p] = load_piece<L>(from, p, columns);
}

template <class L>
LOCKSTEP_DEVICE void store_piece(typename L::T* to, int piece, const Pack<typename L::T>& values,
                                 int columns) {
  const int column = L::column(piece);
  if constexpr (L::packed) {
    if (column < columns) store_pack(to + column, values);
  } else {
#pragma unroll
    for (int i = 0; i < L::width; ++i)
      if (column + i < columns) to[column + i] = from_float<typename L::T>(values[i]);
  }
}

/// Returns the sum over the threads of a row, on each of them. `scratch` holds a float for each warp of the
/// row. It may be used again after another barrier.
template <class L>
LOCKSTEP_DEVICE float row_sum(float value, float* scratch) {
  if constexpr (L::warps == 1)
    return warp_sum(value);
  else
    return block_sum<L::row_threads>(value, scratch);
}

/// Calls body.operator()<RowLayout>() with the smallest layout for rows of `columns` columns.
template <class T, class Body>
void with_layout(int64_t columns, bool packed, Body&& body) {
  expect(columns <= 8192, "layer norm takes at most 8192 columns on a GPU, not ", columns);
  if (!packed) {
    if (columns <= 1024) return body.template operator()<RowLayout<T, 1, 32, false>>();
    if (columns <= 4096) return body.template operator()<RowLayout<T, 4, 32, false>>();
    return body.template operator()<RowLayout<T, 16, 16, false>>();
  }
  if (columns <= 256) return body.template operator()<RowLayout<T, 1, 8, true>>();
  if (columns <= 512) return body.template operator()<RowLayout<T, 1, 16, true>>();
  if (columns <= 768) return body.template operator()<RowLayout<T, 1, 24, true>>();
  if (columns <= 1024) return body.template operator()<RowLayout<T, 1, 32, true>>();
  if (columns <= 2048) return body.template operator()<RowLayout<T, 4, 16, true>>();
  if (columns <= 4096) return body.template operator()<RowLayout<T, 4, 32, true>>();
  return body.template operator()<RowLayout<T, 16, 16, true>>();
}

}  // namespace lockstep::cuda
