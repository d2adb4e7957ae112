// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/embedding.h"

#include <vector>

#include "lockstep/kernels/cpu/lanes.h"
#include "lockstep/kernels/cpu/map.h"

namespace lockstep {
namespace {

void expect_ids(const View& ids, int64_t rows) {
  const int32_t* id = ids.as<int32_t>();
  for (int64_t i = 0; i < ids.size(); ++i)
    expect(id[i] >= 0 && id[i] < rows, "id ", id[i], " at position ", i, " is outside a table of ", rows,
           " rows");
}

/// The positions of each row's ids in ascending order. Row r has the entries [first[r], first[r + 1]) of
/// `positions`.
struct PositionsByRow {
  std::vector<int64_t> first;
  std::vector<int64_t> positions;

  PositionsByRow(const View& ids, int64_t rows) : first(rows + 1), positions(ids.size()) {
    const int32_t* id = ids.as<int32_t>();
    for (int64_t i = 0; i < ids.size(); ++i) ++first[id[i] + 1];
    for (int64_t row = 0; row < rows; ++row) first[row + 1] += first[row];
    std::vector<int64_t> next(first.begin(), first.end() - 1);
    for (int64_t i = 0; i < ids.size(); ++i) positions[next[id[i]]++] = i;
  }
};

// Threads share tiles of rows and columns. In small vocabularies a few rows take most of the ids, so shares
// of rows alone would be unequal.
constexpr int64_t tile_rows = 256;
constexpr int64_t tile_columns = 64;

/// dtable[c] = (or +=) the sum over the row's positions of dy[position * columns + c], for c in [0, count).
template <class D, class T>
void sum_row(const PositionsByRow& by_row, int64_t row, const D* dy, int64_t columns, int64_t count,
             bool adds, T* dtable) {
  const int64_t begin = by_row.first[row], end = by_row.first[row + 1];
  if (adds && begin == end) return;
  using Sums = Simd<T, tile_columns>;
  for_each_piece<tile_columns>(
      count, [&](int64_t first, int64_t used) __attribute__((always_inline)) {
        Sums sum;
        for (int64_t p = begin; p < end; ++p)
          sum = sum + Sums::load(dy + by_row.positions[p] * columns + first, used);
        if (adds) sum = sum + Sums::load(dtable + first, used);
        sum.store(dtable + first, used);
      });
}

}  // namespace

void run(CpuStream stream, const EmbeddingForward& k) {
  const int64_t columns = k.table.shape[1];
  const int32_t* ids = k.ids.as<int32_t>();
  expect_ids(k.ids, k.table.shape[0]);
  const int64_t row_bytes = columns * bytes(k.table.dtype);
  const auto* table = static_cast<const std::byte*>(k.table.data);
  auto* y = static_cast<std::byte*>(k.y.data);
  const int64_t grain = elementwise_grain * 4 / std::max<int64_t>(1, row_bytes);
  stream.for_each_chunk(k.ids.size(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(y + i * row_bytes, table + ids[i] * row_bytes, static_cast<size_t>(row_bytes));
  });
}

void run(CpuStream stream, const EmbeddingBackward& k) {
  const int64_t rows = k.dtable.shape[0];
  const int64_t columns = k.dtable.shape[1];
  expect_ids(k.ids, rows);
  const PositionsByRow by_row(k.ids, rows);
  with_float_type(k.dy.dtype, [&]<class D>() {
    const D* dy = k.dy.as<D>();
    auto* dtable = k.dtable.as<Compute<D>>();
    const int64_t column_tiles = (columns + tile_columns - 1) / tile_columns;
    const int64_t row_tiles = (rows + tile_rows - 1) / tile_rows;
    stream.for_each_chunk(row_tiles * column_tiles, 1, [&](int64_t tile, int64_t) {
      const int64_t first_row = tile / column_tiles * tile_rows;
      const int64_t begin = tile % column_tiles * tile_columns;
      const int64_t end = std::min(columns, begin + tile_columns);
      for (int64_t row = first_row; row < std::min(rows, first_row + tile_rows); ++row)
        sum_row(by_row, row, dy + begin, columns, end - begin, k.adds, dtable + row * columns + begin);
    });
  });
}

}  // namespace lockstep
