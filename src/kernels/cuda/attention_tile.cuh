// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of tiles on tensor cores, for attention. The left factor is 16 * m rows of a warp. The right
// factor is a tile in shared memory that all warps read. Accumulators sums[m][n][4] are m x n tiles of
// 16 x 8. With g = lane / 4 and p = 2 (lane % 4), a lane holds elements [g][p, p + 1] and [g + 8][p, p + 1]
// of each tile. Index 2 * half + i is row g + 8 * half and column p + i.

#include "lockstep/kernels/cuda/attention_problem.cuh"
#include "lockstep/kernels/cuda/device/dtype.cuh"
#include "lockstep/kernels/cuda/device/ptx.cuh"
#include "lockstep/kernels/cuda/device/reduce.cuh"

namespace lockstep::cuda::attention {

/// Rows of `size` 16-bit elements in shared memory. The 16-byte chunks of a row are permuted by the row's
/// number. In any eight rows, a column of chunks then uses eight different groups of four banks.
template <class T, int size_>
struct Tile {
  static constexpr int size = size_;
  static constexpr int chunks = size / 8;
  static_assert(size % 32 == 0);
  // Rows of a multiple of 128 bytes begin at the same bank. Other rows begin at one of two banks, 64 bytes
  // apart. So chunks are permuted among eight, or among four.
  static constexpr int permuted = size % 64 == 0 ? 8 : 4;
  T* data;

  /// Returns where a chunk begins, in elements after the first row.
  static LOCKSTEP_DEVICE int offset(int row, int chunk) {
    const int key = permuted == 8 ? row & 7 : (row >> 1) & 3;
    return row * size + 8 * (chunk ^ key);
  }
  LOCKSTEP_DEVICE T* at(int row, int chunk) const { return data + offset(row, chunk); }

  /// Returns the address of the chunk that is `further` chunks behind the chunk 0 or 1 at `offset`, `rows`
  /// rows below. `further` is even and `rows` a multiple of 8. If both are constants this is one operation.
  LOCKSTEP_DEVICE T* at(int offset, int rows, int further) const {
    return data + ((offset ^ 8 * (further % permuted)) + further / permuted * permuted * 8 + rows * size);
  }
};

/// Returns rows of the block, with an address that stays in registers if `held`. ptxas computes any other
/// address again in each iteration of a loop, but not the result of a shuffle.
template <bool held, class T>
LOCKSTEP_DEVICE Rows<T> hold_address(Rows<T> rows) {
  if constexpr (held) {
    const auto address = reinterpret_cast<uint64_t>(rows.data);
    const uint32_t high = __shfl_sync(all_lanes, static_cast<uint32_t>(address >> 32), 0);
    const uint32_t low = __shfl_sync(all_lanes, static_cast<uint32_t>(address), 0);
    rows.data = reinterpret_cast<T*>(uint64_t{high} << 32 | low);
  }
  return rows;
}

/// Begins to copy `rows` rows from row `first` on. Elements beyond the last row or column become zeros.
template <int threads, int rows, class T, int size>
LOCKSTEP_DEVICE void begin_copy(const Tile<T, size>& to, const Rows<const T>& from, int first) {
  // A thread copies the same columns of all its rows. These rows are permuted alike.
  constexpr int lanes = size % 64 == 0 ? 8 : 4;
  constexpr int rows_at_once = threads / lanes;
  static_assert(rows % rows_at_once == 0 && rows_at_once % 8 == 0);
  const int row = static_cast<int>(threadIdx.x) / lanes, chunk = static_cast<int>(threadIdx.x) % lanes;
  T* const target = to.at(row, chunk);
  const auto* const column = reinterpret_cast<const char*>(from.data + 8 * chunk);
  const int row_bytes = from.stride * static_cast<int>(sizeof(T));
#pragma unroll
  for (int i = 0; i < rows; i += rows_at_once) {
    // With one product ptxas spills in the keys' gradient.
    const char* const source = column + (int64_t{first + row} * row_bytes + int64_t{i} * row_bytes);
#pragma unroll
    for (int j = 0; j < size / 8; j += lanes) {
      // An address that is not valid may be outside the array. It is not read.
      const bool valid = first + row + i < from.count && 8 * (chunk + j) < from.size;
      cp_async_16(target + i * size + 8 * j, source + 8 * j * sizeof(T), valid);
    }
  }
}

/// The warp's rows of a left factor: [16 * row_tiles, size] from `row` of a tile. The first 16 * held columns
/// are read once and stay in registers. Each product reads the others again.
template <class T, int size, int row_tiles, int held>
class LeftRows {
 public:
  LOCKSTEP_DEVICE LeftRows(const Tile<T, size>& tile, int row) : tile_(tile), row_(row) {
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int k = 0; k < held; ++k) read(m, k, held_[m][k]);
  }

  /// Gets the fragment of columns [16 k, 16 k + 16) of row tile m.
  LOCKSTEP_DEVICE void get(int m, int k, uint32_t (&fragment)[4]) const {
    if (k >= held) return read(m, k, fragment);
#pragma unroll
    for (int i = 0; i < 4; ++i) fragment[i] = held_[m][k][i];
  }

 private:
  LOCKSTEP_DEVICE void read(int m, int k, uint32_t (&fragment)[4]) const {
    const int lane = lane_index();
    const int offset = Tile<T, size>::offset(row_ + lane % 16, lane / 16);
    load_matrix_x4(fragment, tile_.at(offset, 16 * m, 2 * k));
  }

  Tile<T, size> tile_;
  int row_;
  uint32_t held_[row_tiles][held > 0 ? held : 1][4];
};

/// Sets sums to zero.
template <int row_tiles, int columns>
LOCKSTEP_DEVICE void clear(float (&sums)[row_tiles][columns][4]) {
#pragma unroll
  for (int i = 0; i < row_tiles * columns * 4; ++i) sums[i / 4 / columns][i / 4 % columns][i % 4] = 0.0f;
}

/// Computes sums += left . tile^T. The tile's first 8 * columns rows give one column of sums each.
template <class T, int size, int row_tiles, int held, int columns>
LOCKSTEP_DEVICE void multiply_by_rows(float (&sums)[row_tiles][columns][4],
                                      const LeftRows<T, size, row_tiles, held>& left,
                                      const Tile<T, size>& tile) {
  const int lane = lane_index();
  const int offset = Tile<T, size>::offset(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
  for (int k = 0; k < size / 16; ++k) {
    uint32_t a[row_tiles][4];
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) left.get(m, k, a[m]);
#pragma unroll
    for (int n = 0; n < columns; n += 2) {
      uint32_t b[4];
      load_matrix_x4(b, tile.at(offset, 8 * n, 2 * k));
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
        mma_16x8x16<T>(sums[m][n], a[m], b[0], b[1]);
        mma_16x8x16<T>(sums[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// Computes sums += weights . tile, with the weights rounded to T. Accumulators of one product are the left
/// factor of the next without rearrangement.
template <class T, int size, int row_tiles, int depth>
LOCKSTEP_DEVICE void multiply_by_columns(float (&sums)[row_tiles][size / 8][4],
                                         const float (&weights)[row_tiles][depth][4],
                                         const Tile<T, size>& tile) {
  const int lane = lane_index();
  const int offset = Tile<T, size>::offset(lane % 16, lane / 16);
#pragma unroll
  for (int k = 0; k < depth / 2; ++k) {
    uint32_t a[row_tiles][4];
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&pairs)[4] = weights[m][2 * k + i / 2];
        a[m][i] = pack_pair<T>(pairs[i % 2 * 2], pairs[i % 2 * 2 + 1]);
      }
#pragma unroll
    for (int n = 0; n < size / 8; n += 2) {
      uint32_t b[4];
      load_matrix_x4_transposed(b, tile.at(offset, 16 * k, n));
#pragma unroll
      for (int m = 0; m < row_tiles; ++m) {
        mma_16x8x16<T>(sums[m][n], a[m], b[0], b[1]);
        mma_16x8x16<T>(sums[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// Sets the scores of keys after the query to minus infinity. Rows are queries and columns keys, or vice
/// versa if `rows_are_keys`. `distance` is the first row minus the first column.
template <bool rows_are_keys, int row_tiles, int columns>
LOCKSTEP_DEVICE void hide_later_keys(float (&scores)[row_tiles][columns][4], int distance) {
  const int lane = lane_index();
#pragma unroll
  for (int m = 0; m < row_tiles; ++m)
#pragma unroll
    for (int n = 0; n < columns; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = distance + 16 * m + e / 2 * 8 + lane / 4;
        const int column = 8 * n + lane % 4 * 2 + e % 2;
        if (rows_are_keys ? row > column : column > row) scores[m][n][e] = -INFINITY;
      }
}

/// Writes the warp's sums, times factor_of(row tile, half of it), to rows from `first` on. Sums pass through
/// the warp's own rows of a tile, which no other warp reads. Global memory is written in pieces of 16 bytes.
template <class T, int size, int row_tiles, class FactorOf>
LOCKSTEP_DEVICE void store_rows(const Rows<T>& to, int first, const Tile<T, size>& tile, int row,
                                const float (&sums)[row_tiles][size / 8][4], const FactorOf& factor_of) {
  constexpr int chunks = Tile<T, size>::chunks;
  const int lane = lane_index();
  __syncwarp();
#pragma unroll
  for (int m = 0; m < row_tiles; ++m)
#pragma unroll
    for (int n = 0; n < size / 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float factor = factor_of(m, half);
        T* at = tile.at(row + 16 * m + 8 * half + lane / 4, n) + lane % 4 * 2;
        *reinterpret_cast<uint32_t*>(at) =
            pack_pair<T>(sums[m][n][2 * half] * factor, sums[m][n][2 * half + 1] * factor);
      }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < row_tiles * chunks / 2; ++i) {
    const int index = i * warp_size + lane;
    const int at = index / chunks, chunk = index % chunks;
    if (first + at < to.count && 8 * chunk < to.size)
      *reinterpret_cast<uint4*>(to.data + int64_t{first + at} * to.stride + 8 * chunk) =
          *reinterpret_cast<const uint4*>(tile.at(row + at, chunk));
  }
}

}  // namespace lockstep::cuda::attention
