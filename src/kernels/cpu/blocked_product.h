// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "core/processor.h"
#include "kernels/cpu/column_sum.h"
#include "kernels/cpu/flush_subnormals.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_bf16.h"
#include "kernels/cpu/product_end.h"

namespace lockstep {

/// How a BlockedProduct of S multiplies: by fused multiply-adds of vectors.
template <class S>
struct VectorTiles {
  using Packed = Compute<S>;
  static constexpr int64_t rows = gemm::tile_rows;
  static constexpr int64_t columns = gemm::tile_columns<Packed>;
  static constexpr int64_t depth_unit = 1;
  /// A panel of b and one of a of this depth fit into L1. Where sums of blocks are added up, too.
  static constexpr int64_t depth_at_once = gemm::depth_block;

  struct Registers {};

  static void pack_rows(Packed* panels, gemm::Lanes<S> source, int64_t count, int64_t depth) {
    gemm::pack_rows(panels, source, count, depth);
  }
  static void pack_columns(Packed* panels, gemm::Lanes<S> source, int64_t count, int64_t depth) {
    gemm::pack_columns(panels, source, count, depth);
  }
  static void multiply(Packed* tile, const Packed* left, const Packed* right, int64_t row_count,
                       int64_t column_count, int64_t depth, gemm::Store store) {
    const FlushSubnormals<S> flush;
    gemm::multiply(tile, gemm::Left::panel, left, right, row_count, column_count, depth, store);
  }
};

/// By instructions for bf16: its panels.
struct Bf16Tiles {
  using Packed = bfloat16;
  static constexpr int64_t rows = gemm::bf16::tile_rows;
  static constexpr int64_t columns = gemm::bf16::tile_columns;
  static constexpr int64_t depth_unit = gemm::bf16::depth_unit;

  static void pack_rows(Packed* panels, gemm::Lanes<bfloat16> source, int64_t count, int64_t depth) {
    gemm::bf16::pack_rows(panels, source, count, depth);
  }
  static void pack_columns(Packed* panels, gemm::Lanes<bfloat16> source, int64_t count, int64_t depth) {
    gemm::bf16::pack_columns(panels, source, count, depth);
  }
};

/// By AVX512-BF16.
struct WordTiles : Bf16Tiles {
  static constexpr int64_t depth_at_once = gemm::depth_block;

  struct Registers {};

  static void multiply(float* tile, const Packed* left, const Packed* right, int64_t row_count,
                       int64_t column_count, int64_t depth, gemm::Store store) {
    const FlushSubnormals<bfloat16> flush;
    gemm::bf16::multiply_words(tile, left, right, row_count, column_count, depth, store);
  }
};

/// By AMX.
struct UnitTiles : Bf16Tiles {
  static constexpr int64_t depth_at_once = 3 * gemm::depth_block;

  using Registers = gemm::bf16::Registers;

  static void multiply(float* tile, const Packed* left, const Packed* right, int64_t, int64_t, int64_t depth,
                       gemm::Store store) {
    gemm::bf16::multiply_tiles(tile, left, right, depth, store);
  }
};

/// A product of many rows. Its threads share out c in rectangles, and each packs what it needs of both
/// factors by itself: a block of rows of a, which stays in L2 while stripes of columns of b pass by it, each
/// packed when it is met (Goto & van de Geijn 2008, with the roles of the factors exchanged). Where the inner
/// dimension is long both are taken in groups of its blocks, and tiles wait in memory from one group to the
/// next. What is shared out how does not show: a tile's sums depend on its row, column and depth alone.
template <class Tiles, class S, class Y>
class BlockedProduct {
 public:
  explicit BlockedProduct(const MatMul& kernel)
      : kernel_(kernel), end_(kernel), m_(kernel.m()), n_(kernel.n()), k_(kernel.k()) {}

  /// The memory that run() needs.
  int64_t scratch_bytes(const CpuStream& stream) const {
    const Grid grid = grid_of(stream.pool->size());
    return grid.size() * scratch_of(grid).bytes();
  }

  void run(const CpuStream& stream, std::byte* scratch) const {
    if (m_ == 0 && kernel_.column_sum)
      lockstep::run(stream, ColumnSum{.x = kernel_.b, .y = kernel_.column_sum});
    if (m_ == 0 || n_ == 0) return;
    const Grid grid = grid_of(stream.pool->size());
    const Scratch each = scratch_of(grid);
    stream.for_each_chunk(grid.size(), 1, [&](int64_t number, int64_t) {
      [[maybe_unused]] const typename Tiles::Registers registers;
      const int64_t row = number / grid.across, column = number % grid.across;
      multiply(share_of(row_panels(), grid.down, row), share_of(column_panels(), grid.across, column),
               each.at(scratch + number * each.bytes()));
    });
  }

 private:
  using T = Compute<S>;
  using Packed = typename Tiles::Packed;

  static constexpr int64_t tile_rows = Tiles::rows;
  static constexpr int64_t tile_columns = Tiles::columns;
  static constexpr int64_t tile_size = tile_rows * tile_columns;
  /// Panels of b that are packed at once: so many of its rows' bytes lie next to each other.
  static constexpr int64_t stripe_panels = 4;
  /// Depth that is taken at once, and bytes of the block of a: less than half of an L2 cache of 2 MiB.
  static constexpr int64_t most_depth = 3 * gemm::depth_block;
  static constexpr int64_t block_bytes = 792 << 10;
  /// Panels of columns whose tiles wait for the next group of depth.
  static constexpr int64_t waiting_panels = 48;
  /// Multiply-adds that are worth waking a thread for, some microseconds.
  static constexpr int64_t least_work = int64_t{1} << 18;

  /// How many rectangles c is cut into.
  struct Grid {
    int64_t down = 1, across = 1;
    int64_t size() const { return down * across; }
  };

  struct Range {
    int64_t begin, end;
    int64_t count() const { return end - begin; }
  };

  struct Memory {
    Packed *left, *right;
    T* tiles;
  };

  /// The elements of each part of a rectangle's memory.
  struct Scratch {
    int64_t left, right, tiles;
    int64_t left_bytes() const { return round_up(left * static_cast<int64_t>(sizeof(Packed)), 64); }
    int64_t right_bytes() const { return round_up(right * static_cast<int64_t>(sizeof(Packed)), 64); }
    int64_t bytes() const {
      return left_bytes() + right_bytes() + round_up(tiles * static_cast<int64_t>(sizeof(T)), 64);
    }
    Memory at(std::byte* memory) const {
      return {reinterpret_cast<Packed*>(memory), reinterpret_cast<Packed*>(memory + left_bytes()),
              reinterpret_cast<T*>(memory + left_bytes() + right_bytes())};
    }
  };

  int64_t row_panels() const { return divide_up(m_, tile_rows); }
  int64_t column_panels() const { return divide_up(n_, tile_columns); }
  int64_t groups() const { return std::max<int64_t>(1, divide_up(k_, most_depth)); }
  /// Depth of a group but the last.
  int64_t group_depth() const { return std::min(k_, round_up(divide_up(k_, groups()), gemm::depth_block)); }
  static int64_t padded(int64_t depth) { return round_up(depth, Tiles::depth_unit); }
  int64_t block_panels() const {
    const int64_t panel = tile_rows * padded(group_depth()) * static_cast<int64_t>(sizeof(Packed));
    return std::max<int64_t>(1, block_bytes / std::max<int64_t>(panel, 1));
  }

  static Range share_of(int64_t count, int64_t shares, int64_t number) {
    return {count * number / shares, count * (number + 1) / shares};
  }

  /// The rectangles that take the longest thread the least time, where to pack an element takes about as long
  /// as to multiply it with a register; of equals the flattest.
  Grid grid_of(int64_t threads) const {
    Grid best;
    if (m_ == 0 || n_ == 0) return best;
    const double work = static_cast<double>(m_) * static_cast<double>(n_) * static_cast<double>(k_);
    if (work < static_cast<double>(threads * least_work))
      threads = std::max<int64_t>(1, static_cast<int64_t>(work) / least_work);
    int64_t least = 0;
    for (int64_t down = 1; down <= threads; ++down) {
      const Grid grid{std::min(down, row_panels()), std::min(threads / down, column_panels())};
      const int64_t rows = divide_up(row_panels(), grid.down),
                    columns = divide_up(column_panels(), grid.across);
      const int64_t tiles = rows * columns * tile_size / 16;
      const int64_t packing = rows * tile_rows + columns * tile_columns;
      if (least == 0 || tiles + packing < least) {
        least = tiles + packing;
        best = grid;
      }
    }
    return best;
  }

  Scratch scratch_of(const Grid& grid) const {
    const int64_t rows = std::min(divide_up(row_panels(), grid.down), block_panels());
    const int64_t columns = divide_up(column_panels(), grid.across),
                  stripe = std::min(columns, stripe_panels);
    return {rows * tile_rows * padded(group_depth()), stripe * tile_columns * padded(group_depth()),
            rows * (groups() == 1 ? stripe : std::min(columns, waiting_panels)) * tile_size};
  }

  /// One rectangle, in panels of rows and of columns.
  void multiply(Range rows, Range columns, const Memory& memory) const {
    const int64_t blocks = divide_up(rows.count(), block_panels());
    const int64_t at_once = groups() == 1 ? columns.count() : waiting_panels;
    for (int64_t number = 0; number < blocks; ++number) {
      const Range share = share_of(rows.count(), blocks, number);
      const Range block{rows.begin + share.begin, rows.begin + share.end};
      for (int64_t begin = columns.begin; begin < columns.end; begin += at_once)
        multiply_block(block, {begin, std::min(begin + at_once, columns.end)}, memory);
    }
  }

  /// All groups of depth, one after the other; between two of them the tiles wait.
  void multiply_block(Range block, Range columns, const Memory& memory) const {
    for (int64_t group = 0; group < groups(); ++group) {
      const int64_t depth = group * group_depth(), length = std::min(group_depth(), k_ - depth);
      pack_left(memory.left, block, depth, length);
      for (int64_t panel = columns.begin; panel < columns.end; panel += stripe_panels) {
        const Range stripe{panel, std::min(panel + stripe_panels, columns.end)};
        pack_right(memory.right, stripe, depth, length);
        if (kernel_.column_sum && block.begin == 0) sum_columns_of(stripe, depth, length);
        const int64_t before = groups() == 1 ? 0 : (panel - columns.begin) * block.count();
        multiply_stripe(memory, memory.tiles + before * tile_size, block, stripe, depth, length);
      }
    }
  }

  void pack_left(Packed* left, Range block, int64_t depth, int64_t length) const {
    const gemm::Lanes<S> a = gemm::lanes_of<S>(kernel_.a, kernel_.transpose_a);
    const int64_t row = block.begin * tile_rows;
    Tiles::pack_rows(left, a.from(row).behind(depth), std::min(m_, block.end * tile_rows) - row, length);
  }

  void pack_right(Packed* right, Range stripe, int64_t depth, int64_t length) const {
    const gemm::Lanes<S> b = gemm::lanes_of<S>(kernel_.b, !kernel_.transpose_b);
    const int64_t column = stripe.begin * tile_columns;
    Tiles::pack_columns(right, b.from(column).behind(depth), std::min(n_, stripe.end * tile_columns) - column,
                        length);
  }

  /// Of columns that were packed just now, so that they are in the cache.
  void sum_columns_of(Range stripe, int64_t depth, int64_t length) const {
    const int64_t end = std::min(n_, stripe.end * tile_columns);
    for (int64_t column = stripe.begin * tile_columns; column < end; column += sum_columns)
      sum_column_chunk(kernel_.b.as<S>() + depth * n_ + column, kernel_.column_sum.as<T>() + column, length,
                       n_, std::min(end - column, sum_columns), depth > 0);
  }

  /// The tiles of a block of rows and some columns, a part of the depth at a time.
  void multiply_stripe(const Memory& memory, T* tiles, Range block, Range stripe, int64_t depth,
                       int64_t length) const {
    const int64_t panel_depth = padded(length);
    for (int64_t done = 0; done == 0 || done < length; done += Tiles::depth_at_once) {
      const int64_t step = std::min(length - done, Tiles::depth_at_once);
      const bool is_last = depth + done + step >= k_;
      const auto store = depth + done == 0 ? gemm::Store::overwrite : gemm::Store::add;
      T* tile = tiles;
      for (int64_t j = stripe.begin; j < stripe.end; ++j) {
        const Packed* b = memory.right + ((j - stripe.begin) * panel_depth + done) * tile_columns;
        const int64_t column = j * tile_columns, columns = std::min(n_ - column, tile_columns);
        for (int64_t i = block.begin; i < block.end; ++i, tile += tile_size) {
          const Packed* a = memory.left + ((i - block.begin) * panel_depth + done) * tile_rows;
          const int64_t row = i * tile_rows, rows = std::min(m_ - row, tile_rows);
          Tiles::multiply(tile, a, b, rows, columns, step, store);
          if (is_last) end_.template finish<tile_columns>(tile, row, column, rows, columns);
        }
      }
    }
  }

  const MatMul& kernel_;
  ProductEnd<S, Y> end_;
  int64_t m_, n_, k_;
};

}  // namespace lockstep
