// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/kernels/view.h"

namespace lockstep::gemm {

// The CPU backend computes every product from tiles, except bf16 on processors with instructions for it
// (gemm_bf16.h). A tile is a few rows of the left matrix times a few columns of the right one. Both are
// packed into panels that the inner loop reads front to back (Goto & van de Geijn 2008). An element of a tile
// is one chain of fused multiply-adds per depth_block, and the blocks are added in order. So its bits depend
// only on its row, its column and the depth, on every processor. For products of bf16 this needs
// flush_subnormals.h.

inline constexpr int64_t depth_block = 256;

#if defined(LOCKSTEP_VECTOR_BYTES)
inline constexpr int64_t vector_bytes = LOCKSTEP_VECTOR_BYTES;  ///< of another processor, set by tests
#elif defined(__AVX512F__)
inline constexpr int64_t vector_bytes = 64;
#elif defined(__AVX2__) && defined(__FMA__)
inline constexpr int64_t vector_bytes = 32;
#else
inline constexpr int64_t vector_bytes = 16;
#endif
inline constexpr int64_t tile_rows = vector_bytes == 64 ? 12 : 4;
inline constexpr int64_t tile_vectors = vector_bytes == 64 ? 2 : 3;
template <class T>
inline constexpr int64_t vector_lanes = vector_bytes / static_cast<int64_t>(sizeof(T));
template <class T>
inline constexpr int64_t tile_columns = vector_lanes<T>* tile_vectors;

/// A matrix seen as lanes by depth. Lanes are rows of the left factor or columns of the right one, and depth
/// is the inner dimension. One of the strides, in elements, is 1.
template <class S>
struct Lanes {
  const S* data = nullptr;
  int64_t lane_stride = 0;
  int64_t depth_stride = 0;

  Lanes from(int64_t lane) const { return {data + lane * lane_stride, lane_stride, depth_stride}; }
  Lanes behind(int64_t depth) const { return {data + depth * depth_stride, lane_stride, depth_stride}; }
};

template <class S>
Lanes<S> lanes_of(const View& matrix, bool lanes_are_columns) {
  const int64_t stride = matrix.shape[-1];
  return lanes_are_columns ? Lanes<S>{matrix.as<S>(), 1, stride} : Lanes<S>{matrix.as<S>(), stride, 1};
}

/// Packs the first `count` lanes into panels [depth][tile_rows], one after the other. The rest of the last
/// panel is zero. Panels of 16-bit matrices are fp32, which holds each of their values.
template <class T, class S>
void pack_rows(T* panels, Lanes<S> source, int64_t count, int64_t depth);

/// Packs the first `count` lanes into panels [depth][tile_columns], one after the other. The rest of the last
/// panel is zero. Panels of 16-bit matrices are fp32.
template <class T, class S>
void pack_columns(T* panels, Lanes<S> source, int64_t count, int64_t depth);

/// Unpacks one panel of pack_columns: target[lane * lane_stride + d] = panel[d][lane] for the first `count`
/// lanes.
template <class T>
void unpack_columns(T* target, int64_t lane_stride, const T* panel, int64_t count, int64_t depth);

/// The layout of the left factor of a tile: a panel of pack_rows, or the rows of another tile.
enum class Left { panel, tile };

/// How a product combines its sums with the former content of a tile.
enum class Store {
  overwrite,
  add,   ///< adds the sum of each depth_block to the tile
  chain  ///< continues chains (fp32 and f64): their bits are the same for any cut of the depth into calls
};

/// tile[rows][tile_columns] = (or +=) left . right over `depth`, for the first `rows` <= tile_rows rows and
/// `columns` <= tile_columns columns. Inside the tile rows are rounded up to 4 and columns to whole vectors.
/// `right` is a panel of pack_columns, or the rows of another tile.
template <class T>
void multiply(T* tile, Left layout, const T* left, const T* right, int64_t rows, int64_t columns,
              int64_t depth, Store store = Store::overwrite);

/// tile[rows][tile_columns] = (or +=) left . right over `depth`, with the left factor read from a matrix: row
/// i is at left + i * left_stride. `rows` is a multiple of 4, so no row beyond them is read.
template <class T>
void multiply_in_place(T* tile, const T* left, int64_t left_stride, const T* right, int64_t rows,
                       int64_t columns, int64_t depth, Store store);

/// sums[lane] = the chain over d of left[d][lane] * right[d][lane], for two panels of pack_columns.
template <class T>
void multiply_lanes(T* sums, const T* left, const T* right, int64_t depth);

// A product of few rows is bound by reading its right factor. It reads this factor once and in place. Packing
// it first would move it three times.

inline constexpr int64_t most_strip_rows = 32;
template <class T>
inline constexpr int64_t strip_columns = 8 * vector_lanes<T>;

/// sums[strip][rows][strip_columns] = left . right over `depth` <= depth_block, for the strips that hold
/// `columns` lanes of `right`. These lanes are contiguous. Further columns of the sums may hold anything. The
/// bits are those of multiply().
template <class T, class S>
void multiply_strips(T* sums, const T* left, int64_t left_stride, int64_t rows, Lanes<S> right,
                     int64_t columns, int64_t depth);

/// sums[rows][vector_lanes] = left . right over any `depth`, for rows <= most_strip_rows and columns <=
/// vector_lanes. Rows of `left` follow each other, and each lane of `right` is contiguous in memory. Further
/// columns of the sums may hold anything. Prefetches the memory after these lanes, which holds the next
/// columns. The bits are those of multiply().
template <class T, class S>
void multiply_transposed(T* sums, const T* left, int64_t rows, Lanes<S> right, int64_t columns,
                         int64_t depth);

}  // namespace lockstep::gemm
