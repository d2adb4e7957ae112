// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lockstep/kernels/cpu/gemm.h"
#include "lockstep/kernels/cpu/map.h"
#include "lockstep/kernels/cpu/tiles.h"
#include "lockstep/kernels/math.h"
#include "lockstep/kernels/random.h"

namespace lockstep::attention {

// A task processes one head of one sample after the other. It divides the queries of a head into blocks as
// wide as a tile. It stores the weights of a block transposed, as a strip [keys][queries]. So the terms of a
// softmax's sum are in different registers instead of the lanes of one register. The strip is also a factor
// of the next product as it is. Every buffer is padded to whole tiles. The weight of a key after the query is
// exactly 0. The weight of a padding key is also 0.

using gemm::Lanes;
using gemm::Left;
using gemm::Store;
using gemm::tile_columns;
using gemm::tile_rows;

/// An allocator that hands out parts of one block of memory. Without memory it only counts the elements that
/// are needed.
template <class T>
class Scratch {
 public:
  explicit Scratch(T* memory) : memory_(memory) {}

  template <class P = T>
  P* take(int64_t count) {
    T* part = memory_ ? memory_ + used_ : nullptr;
    used_ += divide_up(count * static_cast<int64_t>(sizeof(P)), 64) * (64 / static_cast<int64_t>(sizeof(T)));
    return reinterpret_cast<P*>(part);
  }
  int64_t used() const { return used_; }

 private:
  T* memory_;
  int64_t used_ = 0;
};

/// The rows of one head as they are stored. Row i is at data + i * stride.
template <class S>
struct Rows {
  S* data = nullptr;
  int64_t stride = 0;

  Rows from(int64_t row) const { return {data + row * stride, stride}; }
  Lanes<S> as_lanes() const { return {data, stride, 1}; }
  Lanes<S> as_depth() const { return {data, 1, stride}; }
};

/// A block of queries [first, first + count) and the keys that any of them sees. padded_keys() rounds the
/// keys up as a tile does.
template <class T>
struct QueryBlock {
  int64_t first;
  int64_t count;
  int64_t keys() const { return first + count; }
  int64_t padded_keys() const { return round_up(keys(), 4); }
  /// Returns the number of leading queries, in whole vectors, that see neither this key nor a later one.
  int64_t blind_queries(int64_t key) const {
    return std::max<int64_t>(key - first, 0) / gemm::vector_lanes<T> * gemm::vector_lanes<T>;
  }
};

/// The parameters of a task for one head: everything but its data.
struct HeadContext {
  int64_t time, size;
  int64_t first_query;
  double scale;
  double dropout;
  uint64_t dropout_key;  ///< key of this head
  uint32_t sample, step;

  template <class T>
  QueryBlock<T> block(int64_t first) const {
    return {first, std::min(time - first, tile_columns<T>)};
  }
};

/// Packs panels of tile_columns lanes. The distance of two panels leaves room for a whole block of queries.
template <class T, class S>
void pack_all_columns(T* panels, Lanes<S> source, int64_t lanes, int64_t depth) {
  for (int64_t lane = 0; lane < lanes; lane += tile_columns<T>)
    gemm::pack_columns(panels + lane * tile_columns<T>, source.from(lane),
                       std::min(lanes - lane, tile_columns<T>), depth);
}

/// rows[query][size] = strip[size][query] for the first `count` queries. Rows of 16 bits are rounded by way
/// of `buffer` [count, size].
template <class T, class S>
void write_rows(Rows<S> rows, const T* strip, int64_t count, int64_t size, T* buffer) {
  if constexpr (std::same_as<S, T>) return gemm::unpack_columns(rows.data, rows.stride, strip, count, size);
  gemm::unpack_columns(buffer, size, strip, count, size);
  for (int64_t i = 0; i < count; ++i) convert_values(buffer + i * size, size, rows.from(i).data);
}

/// strip[size][queries] = panels . columns, over the keys of the block.
template <class T>
void multiply_keys(T* strip, const T* panels, const T* columns, const QueryBlock<T>& block, int64_t time,
                   int64_t size) {
  for (int64_t d = 0; d < size; d += tile_rows)
    gemm::multiply(strip + d * tile_columns<T>, Left::panel, panels + d * time, columns,
                   std::min(size - d, tile_rows), tile_columns<T>, block.keys());
}

/// strip[keys][queries] = panels . columns. Skips whole vectors of queries that do not see the keys.
template <class Tiles, class T>
void multiply_visible(T* strip, const typename Tiles::Packed* panels, const typename Tiles::Packed* columns,
                      const QueryBlock<T>& block, int64_t size) {
  static_assert(Tiles::columns == tile_columns<T>);
  for (int64_t key = 0; key < block.padded_keys(); key += Tiles::rows) {
    const int64_t skipped = block.blind_queries(key);
    Tiles::multiply(strip + key * tile_columns<T> + skipped, panels + key * round_up(size, Tiles::depth_unit),
                    Tiles::without(columns, skipped), std::min(block.padded_keys() - key, Tiles::rows),
                    tile_columns<T> - skipped, size, Store::overwrite);
  }
}

/// Keys [begin, end) in whole tiles, except at the end.
struct KeyRange {
  int64_t begin, end;
};

/// sums[keys][size] += strip . rows, over the queries of the block that see the keys of the range. A sum is
/// one chain over all queries, for any width of blocks. A query that does not see the key adds 0 to it.
template <class T>
void add_outer_product(T* sums, int64_t padded_time, const T* strip, const T* rows,
                       const QueryBlock<T>& block, const KeyRange& keys, int64_t size) {
  constexpr int64_t width = tile_columns<T>;
  for (int64_t column = 0; column < size; column += width)
    for (int64_t key = keys.begin; key < keys.end; key += tile_rows) {
      const int64_t skipped = block.blind_queries(key);
      gemm::multiply(sums + column * padded_time + key * width, Left::tile, strip + key * width + skipped,
                     rows + (column + skipped) * width, std::min(keys.end - key, tile_rows),
                     std::min(size - column, width), block.count - skipped, Store::chain);
    }
}

/// Overwrites the strip with `value` if the key comes after the query.
template <class T>
void hide_later_keys(T* strip, const QueryBlock<T>& block, T value) {
  for (int64_t key = block.first + 1; key < block.padded_keys(); ++key) {
    T* row = strip + key * tile_columns<T>;
    const int32_t hidden = static_cast<int32_t>(key - block.first);
    for (int32_t lane = 0; lane < tile_columns<T>; ++lane) row[lane] = lane < hidden ? value : row[lane];
  }
}

/// Returns x, with +0 instead of -0. If all terms of a sum are 0, keys and queries that do not see each other
/// decide its sign. The number of such pairs in a block depends on the width of the block.
template <class T>
[[gnu::always_inline]] inline T with_positive_zero(T x) {
  return x + T{0};
}

/// Returns e^x, but e^-80 for x < -80. This is negligible next to the largest weight, and subnormal numbers
/// are slow. NaN stays NaN.
template <class T>
[[gnu::always_inline]] inline T exponential(T x) {
  return math::exp(x < T{-80} ? T{-80} : x);
}

/// Factors by which dropout multiplies the weights of eight neighbouring keys: 0 or 1 / (1 - dropout).
template <class T>
class DropoutFactors {
 public:
  static constexpr int64_t keys = 8;

  explicit DropoutFactors(const HeadContext& head)
      : head_(head),
        threshold_(static_cast<uint32_t>(std::lround(65536 * head.dropout))),
        kept_(static_cast<T>(1 / (1 - head.dropout))) {}

  void draw(int64_t first_key, int64_t first_query) {
    for (int64_t lane = 0; lane < tile_columns<T>; ++lane) {
      const auto words =
          philox<7>(head_.dropout_key, {static_cast<uint32_t>(first_key / keys),
                                        static_cast<uint32_t>(first_query + lane), head_.sample, head_.step});
      for (int64_t pair = 0; pair < keys / 2; ++pair) {
        values_[2 * pair][lane] = (words[pair] & 0xffffu) >= threshold_ ? kept_ : T{0};
        values_[2 * pair + 1][lane] = (words[pair] >> 16) >= threshold_ ? kept_ : T{0};
      }
    }
  }
  const T* of_key(int64_t key) const { return values_[key % keys]; }

 private:
  const HeadContext& head_;
  uint32_t threshold_;
  T kept_;
  alignas(64) T values_[keys][tile_columns<T>];
};

}  // namespace lockstep::attention
