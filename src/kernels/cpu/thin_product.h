// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "lockstep/kernels/cpu/flush_subnormals.h"
#include "lockstep/kernels/cpu/gemm.h"
#include "lockstep/kernels/cpu/gemm_vector.h"
#include "lockstep/kernels/cpu/product_end.h"

namespace lockstep {

/// A product with few rows, for which reading b in place is faster than packing it.
template <class S, class Y>
class ThinProduct {
 public:
  explicit ThinProduct(const MatMul& kernel)
      : kernel_(kernel), end_(kernel), m_(kernel.m()), n_(kernel.n()), k_(kernel.k()) {}

  static bool suits(const MatMul& kernel) {
    return kernel.m() <= gemm::most_strip_rows && !kernel.transpose_a && !kernel.column_sum;
  }

  /// Returns the bytes of memory that run() needs.
  int64_t scratch_bytes(const CpuStream&) const {
    return ((std::same_as<S, T> ? 0 : m_ * k_) + strip_sums_size()) * static_cast<int64_t>(sizeof(T));
  }

  void run(const CpuStream& stream, std::byte* memory) const {
    if (m_ == 0 || n_ == 0) return;
    T* scratch = reinterpret_cast<T*>(memory);
    const T* left = scratch;
    if constexpr (std::same_as<S, T>) {
      left = kernel_.a.as<T>();
    } else {
      convert_values(kernel_.a.as<S>(), m_ * k_, scratch);
      scratch += m_ * k_;
    }
    if (kernel_.transpose_b)
      multiply_transposed(stream, left);
    else
      multiply_strips(stream, left, scratch);
  }

 private:
  using T = Compute<S>;

  /// Fewest multiply-adds of a few rows that are worth waking a thread, some microseconds. The limit for sums
  /// of blocks is least_sums.
  static constexpr int64_t least_strip_work = int64_t{1} << 16;
  static constexpr int64_t least_sums = int64_t{1} << 12;
  /// Largest number of strip sums at a time, a part of L1. Every few rows of b update all of them.
  static constexpr int64_t most_strip_sums = 24576 / static_cast<int64_t>(sizeof(T));
  /// Number of shares per thread. More shares balance the threads better. With fewer shares a thread reads on
  /// for longer and uses more of its own prefetches.
  static constexpr int64_t shares_per_thread = 2;
  static constexpr int64_t strip_columns = gemm::strip_columns<T>;

  int64_t strips() const { return divide_up(n_, strip_columns); }
  int64_t depth_blocks() const { return std::max<int64_t>(1, divide_up(k_, gemm::depth_block)); }
  int64_t strip_sums_size() const {
    return kernel_.transpose_b || depth_blocks() == 1 ? 0 : depth_blocks() * strips() * m_ * strip_columns;
  }

  /// Returns how many of `count` parts make a chunk. Each part has `work` multiply-adds.
  static int64_t grain(const CpuStream& stream, int64_t count, int64_t work) {
    return std::max(count / (shares_per_thread * stream.pool->size()),
                    least_strip_work / std::max<int64_t>(work, 1));
  }

  /// Multiplies the strips of all blocks of depth as one sequence. A thread reads its share of them along
  /// whole rows of b as far as possible. The division among threads does not change the sums.
  void multiply_strips(const CpuStream& stream, const T* left, T* sums) const {
    const gemm::Lanes<S> b = gemm::lanes_of<S>(kernel_.b, true);
    const int64_t strip_size = m_ * strip_columns, blocks = depth_blocks(), count = blocks * strips();
    const int64_t most_at_once = most_strip_sums / strip_size;
    static_assert(most_strip_sums >= gemm::most_strip_rows * strip_columns);
    const int64_t work = strip_size * std::min(k_, gemm::depth_block);
    stream.for_each_chunk(count, grain(stream, count, work), [&](int64_t begin, int64_t end) {
      alignas(64) T whole_sums[most_strip_sums];
      while (begin < end) {
        const int64_t depth = begin / strips() * gemm::depth_block, strip = begin % strips();
        const int64_t at_once = std::min({end - begin, strips() - strip, most_at_once});
        const int64_t column = strip * strip_columns;
        const gemm::Lanes<S> right{b.data + depth * b.depth_stride + column, 1, b.depth_stride};
        gemm::multiply_strips(blocks == 1 ? whole_sums : sums + begin * strip_size, left + depth, k_, m_,
                              right, std::min(n_ - column, at_once * strip_columns),
                              std::min(k_ - depth, gemm::depth_block));
        if (blocks == 1)
          for (int64_t i = 0; i < at_once; ++i)
            finish<strip_columns>(whole_sums + i * strip_size, column + i * strip_columns);
        begin += at_once;
      }
    });
    if (blocks == 1) return;
    stream.for_each_chunk(strips(), least_sums / (strip_size * blocks), [&](int64_t begin, int64_t end) {
      for (int64_t strip = begin; strip < end; ++strip) {
        T* sum = sums + strip * strip_size;
        for (int64_t block = 1; block < blocks; ++block) {
          const FlushSubnormals<S> flush;
          const T* next = sum + block * strips() * strip_size;
          for (int64_t i = 0; i < strip_size; i += gemm::vector_lanes<T>) {
            using Vector = gemm::Vector<T>;
            gemm::store(sum + i, gemm::add<T>(gemm::load<Vector>(sum + i), gemm::load<Vector>(next + i)));
          }
        }
        finish<strip_columns>(sum, strip * strip_columns);
      }
    });
  }

  void multiply_transposed(const CpuStream& stream, const T* left) const {
    constexpr int64_t width = gemm::vector_lanes<T>;
    const gemm::Lanes<S> b = gemm::lanes_of<S>(kernel_.b, false);
    const int64_t count = divide_up(n_, width);
    stream.for_each_chunk(count, grain(stream, count, m_ * k_ * width), [&](int64_t begin, int64_t end) {
      alignas(64) T sums[gemm::most_strip_rows * width];
      for (int64_t column = begin * width; column < std::min(n_, end * width); column += width) {
        gemm::multiply_transposed(sums, left, m_, b.from(column), std::min(n_ - column, width), k_);
        finish<width>(sums, column);
      }
    });
  }

  /// Finishes the columns from `column` on in all rows, at most `width` columns.
  template <int64_t width>
  void finish(T* sums, int64_t column) const {
    end_.template finish<width>(sums, 0, column, m_, std::min(n_ - column, width));
  }

  const MatMul& kernel_;
  ProductEnd<S, Y> end_;
  int64_t m_, n_, k_;
};

}  // namespace lockstep
