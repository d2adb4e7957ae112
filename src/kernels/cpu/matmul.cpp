// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"

#include <algorithm>

#include "core/memory.h"
#include "kernels/batched_matmul.h"
#include "kernels/cpu/column_sum.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/map.h"
#include "kernels/cpu/math.h"

namespace lockstep {
namespace {

using gemm::Lanes;
using gemm::strip_columns;
using gemm::tile_columns;
using gemm::tile_rows;

// The tiles of one chunk: few enough to share small products out evenly, and the right panels stay in L2
// while the chunks below each other read them.
constexpr int64_t chunk_row_panels = 2;
constexpr int64_t chunk_column_panels = 4;

/// Multiply-adds of a few rows that are worth waking a thread for, some microseconds; and sums of blocks.
constexpr int64_t least_strip_work = int64_t{1} << 16;
constexpr int64_t least_sums = int64_t{1} << 12;

/// Sums of strips that are met again with every few rows of b: a part of L1.
template <class T>
constexpr int64_t most_strip_sums = 24576 / static_cast<int64_t>(sizeof(T));

/// The shares of a thread: more of them even out what threads get, and fewer let it read on for longer and
/// meet itself what it has asked for.
constexpr int64_t shares_per_thread = 2;

/// Multiply-adds of a product that is not worth sharing out, where there are several: some tens of
/// microseconds.
constexpr int64_t largest_small_product = int64_t{1} << 21;

constexpr int64_t divide_up(int64_t count, int64_t size) { return (count + size - 1) / size; }

/// y = activation(x), where a backward one also reads what its GELU was applied to.
template <class T, class Y>
void apply(Activation activation, const T* x, const Y* pre_activation, Y* y, int64_t count) {
  switch (activation) {
    case Activation::none:
      convert_values(x, count, y);
      return;
    case Activation::gelu_tanh:
      map_range<T>(
          0, count, y, [](T v) { return math::gelu<Gelu::tanh>(v); }, x);
      return;
    case Activation::gelu_erf:
      map_range<T>(
          0, count, y, [](T v) { return math::gelu<Gelu::erf>(v); }, x);
      return;
    case Activation::gelu_tanh_backward:
      map_range<T>(
          0, count, y, [](T z, T dy) { return dy * math::gelu_slope<Gelu::tanh>(z); }, pre_activation, x);
      return;
    case Activation::gelu_erf_backward:
      map_range<T>(
          0, count, y, [](T z, T dy) { return dy * math::gelu_slope<Gelu::erf>(z); }, pre_activation, x);
      return;
  }
}

static_assert(tile_columns<float> <= sum_columns);

/// A product of matrices of S, written as Y, which is S or what S is computed in.
template <class S, class Y>
class Product {
 public:
  using T = Compute<S>;

  explicit Product(const MatMul& kernel)
      : kernel_(kernel),
        m_(kernel.m()),
        n_(kernel.n()),
        k_(kernel.k()),
        row_panels_(divide_up(m_, tile_rows)),
        column_panels_(divide_up(n_, tile_columns<T>)) {}

  /// The elements of memory that run() needs.
  int64_t scratch_size() const {
    if (is_thin()) return (std::same_as<S, T> ? 0 : m_ * k_) + strip_sums_size();
    return rows_size() + columns_size();
  }

  void run(const CpuStream& stream, T* scratch) {
    if (is_thin()) return run_thin(stream, scratch);
    columns_ = scratch;
    rows_ = columns_ + columns_size();
    stream.for_each_chunk(row_panels_ + column_panels_, 4, [&](int64_t begin, int64_t end) {
      if (begin < row_panels_) pack_left(begin, std::min(end, row_panels_));
      for (int64_t panel = std::max(begin, row_panels_); panel < end; ++panel)
        pack_right(panel - row_panels_);
    });
    const int64_t chunks_below = divide_up(row_panels_, chunk_row_panels);
    const int64_t chunks_across = divide_up(column_panels_, chunk_column_panels);
    stream.for_each_chunk(chunks_below * chunks_across, 1, [&](int64_t chunk, int64_t) {
      multiply_chunk(chunk % chunks_below * chunk_row_panels, chunk / chunks_below * chunk_column_panels);
    });
  }

 private:
  int64_t rows_size() const { return row_panels_ * tile_rows * k_; }
  int64_t columns_size() const { return column_panels_ * tile_columns<T> * k_; }

  /// So few rows that b is better read by strips than packed.
  bool is_thin() const { return m_ <= gemm::most_strip_rows && !kernel_.transpose_a && !kernel_.column_sum; }

  int64_t strips() const { return divide_up(n_, strip_columns<T>); }
  int64_t depth_blocks() const { return std::max<int64_t>(1, divide_up(k_, gemm::depth_block)); }
  int64_t strip_sums_size() const {
    return kernel_.transpose_b || depth_blocks() == 1 ? 0 : depth_blocks() * strips() * m_ * strip_columns<T>;
  }

  /// How many of `count` parts with so many multiply-adds each are a chunk.
  static int64_t thin_grain(const CpuStream& stream, int64_t count, int64_t work) {
    return std::max(count / (shares_per_thread * stream.pool->size()),
                    least_strip_work / std::max<int64_t>(work, 1));
  }

  void run_thin(const CpuStream& stream, T* scratch) const {
    if (m_ == 0 || n_ == 0) return;
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

  /// The strips of all blocks of depth follow each other, and a thread reads its share of them along whole
  /// rows of b as far as it goes. Who summed a block of a strip, and what beside it, does not show.
  void multiply_strips(const CpuStream& stream, const T* left, T* sums) const {
    const Lanes<S> b = lanes(kernel_.b, true);
    const int64_t strip_size = m_ * strip_columns<T>, blocks = depth_blocks(), count = blocks * strips();
    const int64_t most_at_once = most_strip_sums<T> / strip_size;
    static_assert(most_strip_sums<T> >= gemm::most_strip_rows * strip_columns<T>);
    const int64_t work = strip_size * std::min(k_, gemm::depth_block);
    stream.for_each_chunk(count, thin_grain(stream, count, work), [&](int64_t begin, int64_t end) {
      alignas(64) T whole_sums[most_strip_sums<T>];
      while (begin < end) {
        const int64_t depth = begin / strips() * gemm::depth_block, strip = begin % strips();
        const int64_t at_once = std::min({end - begin, strips() - strip, most_at_once});
        const int64_t column = strip * strip_columns<T>;
        const Lanes<S> right{b.data + depth * b.depth_stride + column, 1, b.depth_stride};
        gemm::multiply_strips(blocks == 1 ? whole_sums : sums + begin * strip_size, left + depth, k_, m_,
                              right, std::min(n_ - column, at_once * strip_columns<T>),
                              std::min(k_ - depth, gemm::depth_block));
        if (blocks == 1)
          for (int64_t i = 0; i < at_once; ++i)
            finish_rows(whole_sums + i * strip_size, column + i * strip_columns<T>, strip_columns<T>);
        begin += at_once;
      }
    });
    if (blocks == 1) return;
    stream.for_each_chunk(strips(), least_sums / (strip_size * blocks), [&](int64_t begin, int64_t end) {
      for (int64_t strip = begin; strip < end; ++strip) {
        T* sum = sums + strip * strip_size;
        for (int64_t block = 1; block < blocks; ++block) {
          const T* next = sum + block * strips() * strip_size;
          for (int64_t i = 0; i < strip_size; ++i) sum[i] += next[i];
        }
        finish_rows(sum, strip * strip_columns<T>, strip_columns<T>);
      }
    });
  }

  void multiply_transposed(const CpuStream& stream, const T* left) const {
    constexpr int64_t width = gemm::vector_lanes<T>;
    const Lanes<S> b = lanes(kernel_.b, false);
    const int64_t count = divide_up(n_, width);
    stream.for_each_chunk(count, thin_grain(stream, count, m_ * k_ * width), [&](int64_t begin, int64_t end) {
      alignas(64) T sums[gemm::most_strip_rows * width];
      for (int64_t column = begin * width; column < std::min(n_, end * width); column += width) {
        gemm::multiply_transposed(sums, left, m_, b.from(column), std::min(n_ - column, width), k_);
        finish_rows(sums, column, width);
      }
    });
  }

  /// Of all rows, those columns from `column` on that there are of `width`.
  void finish_rows(T* sums, int64_t column, int64_t width) const {
    for (int64_t i = 0; i < m_; ++i)
      finish(sums + i * width, column, i * n_ + column, std::min(n_ - column, width));
  }

  void pack_left(int64_t begin, int64_t end) const {
    const int64_t row = begin * tile_rows;
    const Lanes<S> a = lanes(kernel_.a, kernel_.transpose_a).from(row);
    gemm::pack_rows(rows_ + row * k_, a, std::min(m_, end * tile_rows) - row, k_);
  }

  void pack_right(int64_t panel) const {
    const int64_t column = panel * tile_columns<T>;
    const Lanes<S> b = lanes(kernel_.b, !kernel_.transpose_b).from(column);
    const int64_t columns = std::min(n_ - column, tile_columns<T>);
    gemm::pack_columns(columns_ + column * k_, b, columns, k_);
    if (kernel_.column_sum)  // while the panel is in the cache
      sum_column_chunk(columns_ + column * k_, kernel_.column_sum.as<T>() + column, k_, tile_columns<T>,
                       columns);
  }

  static Lanes<S> lanes(const View& matrix, bool lanes_are_columns) {
    const int64_t stride = matrix.shape[-1];
    return lanes_are_columns ? Lanes<S>{matrix.as<S>(), 1, stride} : Lanes<S>{matrix.as<S>(), stride, 1};
  }

  void multiply_chunk(int64_t first_row_panel, int64_t first_column_panel) const {
    const int64_t row_panels = std::min(first_row_panel + chunk_row_panels, row_panels_);
    const int64_t column_panels = std::min(first_column_panel + chunk_column_panels, column_panels_);
    for (int64_t j = first_column_panel; j < column_panels; ++j)
      for (int64_t i = first_row_panel; i < row_panels; ++i)
        multiply_tile(i * tile_rows, j * tile_columns<T>);
  }

  void multiply_tile(int64_t row, int64_t column) const {
    alignas(64) T tile[tile_rows * tile_columns<T>];
    const int64_t rows = std::min(m_ - row, tile_rows);
    const int64_t columns = std::min(n_ - column, tile_columns<T>);
    gemm::multiply(tile, gemm::Left::panel, rows_ + row * k_, columns_ + column * k_, rows, columns, k_);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t offset = (row + i) * n_ + column;
      if (columns == tile_columns<T>)
        finish(tile + i * tile_columns<T>, column, offset, tile_columns<T>);
      else
        finish(tile + i * tile_columns<T>, column, offset, columns);
    }
  }

  void finish(T* values, int64_t column, int64_t offset, int64_t columns) const {
    if (kernel_.scale != 1.0)
      for (int64_t j = 0; j < columns; ++j) values[j] *= static_cast<T>(kernel_.scale);
    if (kernel_.bias) {
      const S* bias = kernel_.bias.as<S>() + column;
      for (int64_t j = 0; j < columns; ++j) values[j] += static_cast<T>(bias[j]);
    }
    if (kernel_.residual) {
      const Y* residual = kernel_.residual.as<Y>() + offset;
      for (int64_t j = 0; j < columns; ++j) values[j] += static_cast<T>(residual[j]);
    }
    Y* pre_activation = kernel_.pre_activation ? kernel_.pre_activation.as<Y>() + offset : nullptr;
    if (pre_activation && !is_backward(kernel_.activation)) convert_values(values, columns, pre_activation);
    apply(kernel_.activation, values, pre_activation, kernel_.c.as<Y>() + offset, columns);
  }

  const MatMul& kernel_;
  int64_t m_, n_, k_;
  int64_t row_panels_, column_panels_;
  T* rows_ = nullptr;
  T* columns_ = nullptr;
};

/// Calls body.operator()<P>() with P the Product of operands and a result of these dtypes.
template <class Body>
void with_product(DType operands, DType result, Body&& body) {
  with_float_type(operands, [&]<class S>() {
    if (result == operands) return body.template operator()<Product<S, S>>();
    if constexpr (!std::same_as<S, Compute<S>>) body.template operator()<Product<S, Compute<S>>>();
  });
}

/// The bytes of the panels of a product.
int64_t panels_bytes(const MatMul& kernel) {
  int64_t size = 0;
  with_product(kernel.a.dtype, kernel.c.dtype, [&]<class P>() {
    size = P(kernel).scratch_size() * static_cast<int64_t>(sizeof(typename P::T));
  });
  return size;
}

bool is_small(const BatchedMatMul& kernel) {
  return kernel.m() * kernel.n() * kernel.k() <= largest_small_product;
}

/// The same of each product of a batch, so that those of the next begin aligned.
int64_t panels_bytes(const BatchedMatMul& kernel) {
  const MatMul first{.a = kernel.matrix(kernel.a, 0),
                     .b = kernel.matrix(kernel.b, 0),
                     .c = kernel.matrix(kernel.c, 0),
                     .transpose_a = kernel.transpose_a,
                     .transpose_b = kernel.transpose_b};
  const int64_t unit = 64 * bytes(accumulator_dtype(kernel.a.dtype));
  return divide_up(panels_bytes(first), unit) * unit;
}

}  // namespace

int64_t scratch_bytes(CpuStream, const MatMul& kernel) { return panels_bytes(kernel); }

void run(CpuStream stream, const MatMul& kernel) {
  with_product(kernel.a.dtype, kernel.c.dtype, [&]<class P>() {
    P product(kernel);
    const auto scratch = allocate_scratch(stream, kernel);
    product.run(stream, reinterpret_cast<typename P::T*>(scratch.get()));
  });
}

int64_t scratch_bytes(CpuStream, const BatchedMatMul& kernel) {
  if (kernel.c.size() == 0) return 0;
  return (is_small(kernel) ? kernel.batch() : 1) * panels_bytes(kernel);
}

void run(CpuStream stream, const BatchedMatMul& kernel) {
  const int64_t batch = kernel.batch();
  if (kernel.c.size() == 0) return;
  const BroadcastPlan plan = kernel.plan();
  const auto matrices = [&](int64_t number) {
    return MatMul{.a = kernel.matrix(kernel.a, plan.place(plan.of_a, number)),
                  .b = kernel.matrix(kernel.b, plan.place(plan.of_b, number)),
                  .c = kernel.matrix(kernel.c, number),
                  .transpose_a = kernel.transpose_a,
                  .transpose_b = kernel.transpose_b};
  };
  with_product(kernel.a.dtype, kernel.c.dtype, [&]<class P>() {
    using T = typename P::T;
    const int64_t size = panels_bytes(kernel) / static_cast<int64_t>(sizeof(T));
    const auto memory = allocate_scratch(stream, kernel);
    T* scratch = reinterpret_cast<T*>(memory.get());
    // Small products are shared out whole; a large one is shared out itself.
    ThreadPool alone(1);
    const auto multiply = [&](const CpuStream& by, int64_t number, T* in) {
      const MatMul product = matrices(number);
      P(product).run(by, in);
    };
    if (is_small(kernel))
      stream.for_each_chunk(batch, 1, [&](int64_t number, int64_t) {
        multiply(CpuStream{&alone}, number, scratch + number * size);
      });
    else
      for (int64_t number = 0; number < batch; ++number) multiply(stream, number, scratch);
  });
}

void run(CpuStream stream, const ColumnSum& kernel) {
  with_float_type(kernel.x.dtype, [&]<class X>() {
    const int64_t columns = kernel.x.shape[-1];
    const int64_t rows = columns == 0 ? 0 : kernel.x.size() / columns;
    stream.for_each_chunk(columns, sum_columns, [&](int64_t begin, int64_t end) {
      sum_column_chunk(kernel.x.as<X>() + begin, kernel.y.as<Compute<X>>() + begin, rows, columns,
                       end - begin);
    });
  });
}

}  // namespace lockstep
