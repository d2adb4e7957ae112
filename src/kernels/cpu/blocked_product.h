// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "lockstep/kernels/cpu/column_sum.h"
#include "lockstep/kernels/cpu/gemm.h"
#include "lockstep/kernels/cpu/product_end.h"

namespace lockstep {

/// A product of many rows. Its threads divide c into rectangles, and each thread packs its own parts of both
/// factors. A packed block of one factor stays in L2 while stripes of the other factor pass by it (Goto & van
/// de Geijn 2008). A stripe is packed just before it is used. A block is packed once, and the other factor
/// again for every block. The factor that stays is the one that causes less packing. Rows of a that may be
/// read in place are not packed at all.
///
/// A long inner dimension is processed in groups of its blocks. Tiles wait in memory from one group to the
/// next. The division into rectangles does not change the result: a tile's sums depend only on its row,
/// column and depth.
template <class Tiles, class S, class Y>
class BlockedProduct {
 public:
  explicit BlockedProduct(const MatMul& kernel)
      : kernel_(kernel), end_(kernel), m_(kernel.m()), n_(kernel.n()), k_(kernel.k()) {}

  /// Returns the bytes of memory that run() needs.
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
    const bool by_columns = keeps_columns(grid);
    stream.for_each_chunk(grid.size(), 1, [&](int64_t number, int64_t) {
      [[maybe_unused]] const typename Tiles::Registers registers;
      const int64_t row = number / grid.across, column = number % grid.across;
      multiply(share_of(row_panels(), grid.down, row), share_of(column_panels(), grid.across, column),
               by_columns, each.at(scratch + number * each.bytes()));
    });
  }

 private:
  using T = Compute<S>;
  using Packed = typename Tiles::Packed;

  static constexpr int64_t tile_rows = Tiles::rows;
  static constexpr int64_t tile_columns = Tiles::columns;
  static constexpr int64_t tile_size = tile_rows * tile_columns;
  /// Number of panels that are packed at once. Together they have up to 128 lanes, so packing reads long runs
  /// of the rows of a matrix.
  static constexpr int64_t stripe_rows = 128 / tile_rows;
  static constexpr int64_t stripe_columns = 128 / tile_columns;
  /// Depth that is processed at once, and bytes of the block that stays. The block is less than half of an L2
  /// cache of 2 MiB. If rows are read in place, a smaller block is better, since nothing is packed again for
  /// the next block. It is then half of that size, and a quarter for the caches of processors without
  /// AVX-512.
  static constexpr int64_t most_depth = 3 * gemm::depth_block;
  static constexpr int64_t block_bytes = 792 << 10;
  static constexpr int64_t block_bytes_in_place = (gemm::vector_bytes == 64 ? 400 : 200) << 10;
  /// Largest number of panels of the other factor whose tiles wait for the next group of depth.
  static constexpr int64_t waiting_rows = 1536 / tile_rows;
  static constexpr int64_t waiting_columns = 1536 / tile_columns;
  /// Fewest multiply-adds that are worth waking a thread, some microseconds.
  static constexpr int64_t least_work = int64_t{1} << 18;

  /// The number of rectangles into which c is cut.
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

  /// The number of elements in each part of a rectangle's memory.
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
  /// Returns the depth of every group but the last.
  int64_t group_depth() const { return std::min(k_, round_up(divide_up(k_, groups()), gemm::depth_block)); }
  static int64_t padded(int64_t depth) { return round_up(depth, Tiles::depth_unit); }
  /// Returns the number of panels with this many lanes in a block.
  int64_t block_panels(int64_t lanes) const {
    const int64_t panel = lanes * padded(group_depth()) * static_cast<int64_t>(sizeof(Packed));
    return std::max<int64_t>(
        1, (reads_rows_in_place() ? block_bytes_in_place : block_bytes) / std::max<int64_t>(panel, 1));
  }
  /// Returns whether rows of a are read in place. They are not if their distance is a multiple of a page,
  /// because all rows of a tile would then share one set of L1.
  bool reads_rows_in_place() const {
    return Tiles::reads_in_place && !kernel_.transpose_a && k_ * static_cast<int64_t>(sizeof(S)) % 4096 != 0;
  }
  /// Returns whether columns stay while rows pass by, because that needs less packing. All rectangles follow
  /// the largest one, for which memory is laid out. Rectangles differ by a panel, which could change the
  /// comparison.
  bool keeps_columns(const Grid& grid) const {
    if (reads_rows_in_place()) return true;
    const int64_t rows = divide_up(row_panels(), grid.down),
                  columns = divide_up(column_panels(), grid.across);
    const int64_t left = rows * tile_rows, right = columns * tile_columns;
    return right + left * divide_up(columns, block_panels(tile_columns)) <
           left + right * divide_up(rows, block_panels(tile_rows));
  }

  static Range share_of(int64_t count, int64_t shares, int64_t number) {
    return {count * number / shares, count * (number + 1) / shares};
  }

  /// Returns the grid with the shortest time of the slowest thread. Packing an element is assumed to take
  /// about as long as multiplying it with a register. Between equals the grid with fewer rectangles down
  /// wins.
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

  /// Returns the sizes for the largest rectangle.
  Scratch scratch_of(const Grid& grid) const {
    int64_t rows = divide_up(row_panels(), grid.down), columns = divide_up(column_panels(), grid.across);
    const bool waits = groups() > 1;
    int64_t tiles = 1;
    if (keeps_columns(grid)) {
      columns = std::min(columns, block_panels(tile_columns));
      if (waits) tiles = columns * std::min(rows, waiting_rows);
      rows = reads_rows_in_place() ? 1 : std::min(rows, stripe_rows);
    } else {
      rows = std::min(rows, block_panels(tile_rows));
      tiles = rows * std::min(columns, waits ? waiting_columns : stripe_columns);
      columns = std::min(columns, stripe_columns);
    }
    return {rows * tile_rows * padded(group_depth()), columns * tile_columns * padded(group_depth()),
            tiles * tile_size};
  }

  /// Multiplies one rectangle, given in panels of rows and of columns.
  void multiply(Range rows, Range columns, bool by_columns, const Memory& memory) const {
    const Range kept = by_columns ? columns : rows, passing = by_columns ? rows : columns;
    const int64_t blocks = divide_up(kept.count(), block_panels(by_columns ? tile_columns : tile_rows));
    const int64_t at_once = groups() == 1 ? passing.count() : by_columns ? waiting_rows : waiting_columns;
    for (int64_t number = 0; number < blocks; ++number) {
      const Range share = share_of(kept.count(), blocks, number);
      const Range block{kept.begin + share.begin, kept.begin + share.end};
      for (int64_t begin = passing.begin; begin < passing.end; begin += at_once) {
        const Range part{begin, std::min(begin + at_once, passing.end)};
        by_columns ? pass_rows(part, block, memory) : pass_columns(block, part, memory);
      }
    }
  }

  /// Calls body(depth, length) for all groups of depth in order. Between two groups the tiles wait in memory.
  template <class Body>
  void for_each_group(Body&& body) const {
    for (int64_t group = 0; group < groups(); ++group) {
      const int64_t depth = group * group_depth();
      body(depth, std::min(group_depth(), k_ - depth));
    }
  }

  /// Multiplies stripes of columns with a block of rows. A panel of columns stays in L1 for a part of the
  /// depth.
  void pass_columns(Range block, Range columns, const Memory& memory) const {
    for_each_group([&](int64_t depth, int64_t length) {
      pack_left(memory.left, block, depth, length);
      for (int64_t panel = columns.begin; panel < columns.end; panel += stripe_columns) {
        const Range stripe{panel, std::min(panel + stripe_columns, columns.end)};
        pack_right(memory.right, stripe, depth, length);
        if (block.begin == 0) sum_columns_of(stripe, depth, length);
        const int64_t before = groups() == 1 ? 0 : (panel - columns.begin) * block.count();
        for (int64_t done = 0; done == 0 || done < length; done += Tiles::depth_at_once) {
          T* tile = memory.tiles + before * tile_size;
          for (int64_t j = stripe.begin; j < stripe.end; ++j)
            for (int64_t i = block.begin; i < block.end; ++i, tile += tile_size)
              multiply_tile(tile, panel_of(memory.left, tile_rows, i - block.begin, length, done),
                            panel_of(memory.right, tile_columns, j - stripe.begin, length, done), i, j,
                            depth + done, std::min(length - done, Tiles::depth_at_once));
        }
      }
    });
  }

  /// Multiplies rows, one stripe after the other, with a block of columns.
  void pass_rows(Range rows, Range block, const Memory& memory) const {
    for_each_group([&](int64_t depth, int64_t length) {
      pack_right(memory.right, block, depth, length);
      if (rows.begin == 0) sum_columns_of(block, depth, length);
      const bool in_place = reads_rows_in_place();
      const int64_t at_once = in_place ? 1 : stripe_rows;
      T* tile = memory.tiles;
      for (int64_t panel = rows.begin; panel < rows.end; panel += at_once) {
        const Range stripe{panel, std::min(panel + at_once, rows.end)};
        const bool packs = !in_place || (m_ % 4 != 0 && stripe.end == row_panels());
        if (packs) pack_left(memory.left, stripe, depth, length);
        for (int64_t i = stripe.begin; i < stripe.end; ++i)
          for (int64_t j = block.begin; j < block.end; ++j) {
            const Packed* right = panel_of(memory.right, tile_columns, j - block.begin, length, 0);
            if (packs)
              multiply_tile(tile, panel_of(memory.left, tile_rows, i - stripe.begin, length, 0), right, i, j,
                            depth, length);
            else
              multiply_tile_in_place(tile, right, i, j, depth, length);
            if (groups() > 1) tile += tile_size;
          }
      }
    });
  }

  /// Returns the panel with this number, from depth `done` on.
  static const Packed* panel_of(const Packed* panels, int64_t lanes, int64_t number, int64_t length,
                                int64_t done) {
    return panels + (number * padded(length) + done) * lanes;
  }

  void pack_left(Packed* left, Range panels, int64_t depth, int64_t length) const {
    const gemm::Lanes<S> a = gemm::lanes_of<S>(kernel_.a, kernel_.transpose_a);
    const int64_t row = panels.begin * tile_rows;
    Tiles::pack_rows(left, a.from(row).behind(depth), std::min(m_, panels.end * tile_rows) - row, length);
  }

  void pack_right(Packed* right, Range panels, int64_t depth, int64_t length) const {
    const gemm::Lanes<S> b = gemm::lanes_of<S>(kernel_.b, !kernel_.transpose_b);
    const int64_t column = panels.begin * tile_columns;
    Tiles::pack_columns(right, b.from(column).behind(depth), std::min(n_, panels.end * tile_columns) - column,
                        length);
  }

  /// Adds up columns that were packed just now and are in the cache.
  void sum_columns_of(Range panels, int64_t depth, int64_t length) const {
    if (!kernel_.column_sum) return;
    const int64_t begin = panels.begin * tile_columns, end = std::min(n_, panels.end * tile_columns);
    sum_column_chunk(kernel_.b.as<S>() + depth * n_ + begin, kernel_.column_sum.as<T>() + begin, length, n_,
                     end - begin, depth > 0);
  }

  static gemm::Store store_at(int64_t depth) {
    return depth == 0 ? gemm::Store::overwrite : gemm::Store::add;
  }

  /// Multiplies tile i, j over `length` of the depth, from `depth` on. Finishes the tile after its last part.
  void multiply_tile(T* tile, const Packed* left, const Packed* right, int64_t i, int64_t j, int64_t depth,
                     int64_t length) const {
    Tiles::multiply(tile, left, right, rows_of(i), columns_of(j), length, store_at(depth));
    finish_tile(tile, i, j, depth + length);
  }

  void multiply_tile_in_place(T* tile, const Packed* right, int64_t i, int64_t j, int64_t depth,
                              int64_t length) const {
    if constexpr (Tiles::reads_in_place)
      Tiles::multiply_in_place(tile, kernel_.a.as<S>() + i * tile_rows * k_ + depth, k_, right, rows_of(i),
                               columns_of(j), length, store_at(depth));
    finish_tile(tile, i, j, depth + length);
  }

  void finish_tile(T* tile, int64_t i, int64_t j, int64_t done) const {
    if (done >= k_)
      end_.template finish<tile_columns>(tile, i * tile_rows, j * tile_columns, rows_of(i), columns_of(j));
  }

  int64_t rows_of(int64_t i) const { return std::min(m_ - i * tile_rows, tile_rows); }
  int64_t columns_of(int64_t j) const { return std::min(n_ - j * tile_columns, tile_columns); }

  const MatMul& kernel_;
  ProductEnd<S, Y> end_;
  int64_t m_, n_, k_;
};

}  // namespace lockstep
