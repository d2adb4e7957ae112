// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/cuda/device/pack.cuh"
#include "lockstep/kernels/cuda/device/reduce.cuh"

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
  static constexpr bool centred = true;
  static constexpr int row_threads = 32 * warps;
  static constexpr int rows_at_once = warps == 1 ? 4 : 1;
  static constexpr int rows_per_warp = 1;
  static constexpr int threads = row_threads * rows_at_once;
  static constexpr int width = Pack<T>::size;
  static constexpr int pieces = elements / width;
  /// A warp on its own row needs no barriers. It loads the next row early and keeps the values that all rows
  /// need.
  static constexpr bool runs_ahead = packed && warps == 1;
  static constexpr bool keeps_bias = runs_ahead;
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
  /// Returns which of the rows that the warp handles at once is this thread's.
  static LOCKSTEP_DEVICE int row_in_warp() { return 0; }
};

/// A layout for RMSNorm, whose mean is 0. A bias is rare, so it is not kept in registers.
template <class L>
struct Uncentred : L {
  static constexpr bool centred = false;
  static constexpr bool keeps_bias = false;
};

/// The distribution of rows of at most `most_columns` columns, for RMSNorm. A row is in as few lanes as hold
/// it with 16 bytes each, and a warp has several rows.
template <class Type, int most_columns, bool is_packed>
struct ShortRows {
  using T = Type;
  static constexpr int warps = 1;
  static constexpr bool packed = is_packed;
  static constexpr bool centred = false;
  static constexpr int width = Pack<T>::size;
  static constexpr int elements = width;
  static constexpr int pieces = 1;
  static constexpr int row_threads = most_columns / width;
  static constexpr int threads = 128;
  static constexpr int rows_at_once = threads / row_threads;
  static constexpr int rows_per_warp = warp_size / row_threads;
  static constexpr bool runs_ahead = packed;
  static constexpr bool keeps_bias = false;
  static constexpr int backward_blocks = 8;
  using Row = Pack<T>[pieces];

  static LOCKSTEP_DEVICE int column(int) { return static_cast<int>(threadIdx.x) % row_threads * width; }
  static LOCKSTEP_DEVICE bool leads_row() { return threadIdx.x % row_threads == 0; }
  static LOCKSTEP_DEVICE int row_in_block() { return static_cast<int>(threadIdx.x) / row_threads; }
  static LOCKSTEP_DEVICE int row_in_warp() { return lane_index() / row_threads; }
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
    return warp_sum<L::row_threads>(value);
  else
    return block_sum<L::row_threads>(value, scratch);
}

/// Returns the last sum of a row. Without centring it is the only one, and its scratch may be used again.
template <class L>
LOCKSTEP_DEVICE float last_row_sum(float value, float* scratch) {
  const float sum = row_sum<L>(value, scratch);
  if constexpr (L::warps > 1 && !L::centred) __syncthreads();
  return sum;
}

/// Calls body.operator()<RowLayout>() with the smallest layout for rows of `columns` columns.
template <class T, class Body>
void with_row_layout(int64_t columns, bool packed, Body&& body) {
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

/// Calls body.operator()<Layout>() with a layout for rows of `columns` columns. RMSNorm is not centred.
template <class T, class Body>
void with_layout(int64_t columns, bool packed, bool centred, Body&& body) {
  if (centred) return with_row_layout<T>(columns, packed, body);
  const auto with_short_rows = [&]<int most_columns>() {
    packed ? body.template operator()<ShortRows<T, most_columns, true>>()
           : body.template operator()<ShortRows<T, most_columns, false>>();
  };
  if (columns <= 64) return with_short_rows.template operator()<64>();
  if (columns <= 128) return with_short_rows.template operator()<128>();
  with_row_layout<T>(columns, packed, [&]<class L>() { body.template operator()<Uncentred<L>>(); });
}

}  // namespace lockstep::cuda
