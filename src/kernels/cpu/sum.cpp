// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/sum.h"

#include <cmath>
#include <numeric>

#include "lockstep/core/memory.h"
#include "lockstep/kernels/cpu/column_sum.h"
#include "lockstep/kernels/cpu/lanes.h"
#include "lockstep/kernels/cpu/map.h"

namespace lockstep {
namespace {

/// Number of blocks in a chunk.
constexpr int64_t blocks_per_chunk = elementwise_grain / sum_block;

int64_t rows_of_block(const DimensionSum& k) { return k.inner == 1 ? sum_block : sum_block_rows; }
int64_t blocks_of_sum(const DimensionSum& k) {
  return std::max<int64_t>(1, (k.count + rows_of_block(k) - 1) / rows_of_block(k));
}

int64_t count_blocks(const View& view) { return (view.size() + sum_block - 1) / sum_block; }

/// Computes the sums of the blocks of every sum of a DimensionSum: partials[outer, blocks, inner].
template <class X, class T>
void sum_blocks(const CpuStream& stream, const DimensionSum& k, int64_t block_rows, int64_t blocks,
                T* partials) {
  const X* x = k.x.as<X>();
  const int64_t strips = (k.inner + sum_columns - 1) / sum_columns;
  const int64_t size = std::min(k.count, block_rows) * std::min(k.inner, sum_columns);
  const int64_t grain = elementwise_grain / std::max<int64_t>(1, size);
  stream.for_each_chunk(k.outer() * blocks * strips, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t block = i / strips % blocks, outer = i / strips / blocks;
      const int64_t column = i % strips * sum_columns, row = block * block_rows;
      const int64_t rows = std::min(k.count - row, block_rows);
      const X* from = x + (outer * k.count + row) * k.inner + column;
      T* to = partials + (outer * blocks + block) * k.inner + column;
      if (k.inner == 1)
        *to = lane_sum<T>(rows, [=](int64_t r) { return from[r]; });
      else
        sum_column_chunk(from, to, rows, k.inner, std::min(k.inner - column, sum_columns));
    }
  });
}

}  // namespace

int64_t scratch_bytes(CpuStream, const DimensionSum& k) {
  const int64_t blocks = blocks_of_sum(k);
  return blocks == 1 ? 0 : k.y.size() * blocks * bytes(accumulator_dtype(k.x.dtype));
}

void run(CpuStream stream, const DimensionSum& k) {
  const int64_t block_rows = rows_of_block(k);
  const int64_t blocks = blocks_of_sum(k);
  with_float_type(k.x.dtype, [&]<class X>() {
    using T = Compute<X>;
    T* y = k.y.as<T>();
    if (blocks == 1) return sum_blocks<X>(stream, k, block_rows, blocks, y);
    const auto memory = allocate_scratch(stream, k);
    T* partials = reinterpret_cast<T*>(memory.get());
    sum_blocks<X>(stream, k, block_rows, blocks, partials);
    stream.for_each_chunk(k.y.size(), elementwise_grain / blocks, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* terms = partials + i / k.inner * blocks * k.inner + i % k.inner;
        double sum = 0.0;
        for (int64_t block = 0; block < blocks; ++block) sum += terms[block * k.inner];
        y[i] = static_cast<T>(sum);
      }
    });
  });
}

void run(CpuStream stream, const Sum& k) {
  std::vector<double> partials(static_cast<size_t>(count_blocks(k.x)));
  with_float_type(k.x.dtype, [&]<class X>() {
    using T = Compute<X>;
    stream.for_each_chunk(
        count_blocks(k.x), blocks_per_chunk, [&, all = k.x.as<X>()](int64_t begin, int64_t end) {
          for (int64_t block = begin; block < end; ++block) {
            const X* x = all + block * sum_block;
            const int64_t size = std::min(sum_block, k.x.size() - block * sum_block);
            partials[static_cast<size_t>(block)] = lane_sum<T>(size, [=](int64_t i) { return x[i]; });
          }
        });
    *k.y.as<X>() = static_cast<X>(static_cast<T>(std::accumulate(partials.begin(), partials.end(), 0.0)));
  });
}

void run(CpuStream stream, const BlockSquares& k) {
  auto* sums = k.y.as<double>();
  with_compute_type(k.x.dtype, [&]<class T>() {
    const T* all = k.x.as<T>();
    for (const BlockSquares::Blocks& range : k.ranges)
      stream.for_each_chunk(range.last - range.first, blocks_per_chunk, [&](int64_t begin, int64_t end) {
        for (int64_t block = range.first + begin; block < range.first + end; ++block) {
          const int64_t offset = (block - range.shift) * sum_block;
          const T* x = all + offset;
          const int64_t size = std::min(sum_block, k.x.size() - offset);
          sums[block] = lane_sum<double>(
              size, [=](int64_t i) { return static_cast<double>(x[i]) * static_cast<double>(x[i]); });
        }
      });
  });
}

void run(CpuStream, const ClipFactor& k) {
  const auto* squares = k.squares.as<double>();
  const double scale = k.scale ? *k.scale.as<float>() : 1.0;
  const double norm = std::sqrt(std::accumulate(squares, squares + k.squares.size(), 0.0)) / scale;
  *k.norm.as<double>() = norm;
  *k.factor.as<float>() = clip_factor(norm, k.max_norm, scale);
}

}  // namespace lockstep
