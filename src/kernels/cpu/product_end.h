// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "lockstep/kernels/cpu/gelu.h"
#include "lockstep/kernels/cpu/map.h"
#include "lockstep/kernels/matmul.h"

namespace lockstep {

/// The end of a product of S that is written as Y. It processes finished sums while they are in a tile
/// [rows][width] in L1.
template <class S, class Y>
class ProductEnd {
 public:
  using T = Compute<S>;

  explicit ProductEnd(const MatMul& kernel) : kernel_(kernel), n_(kernel.n()) {}

  /// Finishes `rows` x `columns` elements of c, from [row, column] on. Their sums are in sums[rows][width].
  /// Columns up to `width` may hold anything.
  template <int64_t width>
  void finish(T* sums, int64_t row, int64_t column, int64_t rows, int64_t columns) const {
    for (int64_t i = 0; i < rows; i += rows_at_once)
      finish_rows<width>(sums + i * width, (row + i) * n_ + column, column, std::min(rows - i, rows_at_once),
                         columns);
  }

 private:
  /// Few enough rows that the input of a GELU's gradient is in L1 next to the sums.
  static constexpr int64_t rows_at_once = 16;

  /// Finishes at most rows_at_once rows. `offset` is the index of the first element in c.
  template <int64_t width>
  void finish_rows(T* sums, int64_t offset, int64_t column, int64_t rows, int64_t columns) const {
    if (kernel_.scale != 1.0 || kernel_.bias || kernel_.residual)
      for (int64_t i = 0; i < rows; ++i) {
        if (columns == width)
          add(sums + i * width, column, offset + i * n_, width);
        else
          add(sums + i * width, column, offset + i * n_, columns);
      }
    Y* pre_activation = kernel_.pre_activation ? kernel_.pre_activation.as<Y>() + offset : nullptr;
    if (is_backward(kernel_.activation)) {
      alignas(64) T x[rows_at_once * width];
      read<width>(x, pre_activation, rows, columns);
      multiply_slopes(sums, x, rows * width);
    } else {
      if (pre_activation) write<width>(pre_activation, sums, rows, columns);
      if (kernel_.activation != Activation::none) activate(sums, rows * width);
    }
    write<width>(kernel_.c.as<Y>() + offset, sums, rows, columns);
  }

  [[gnu::always_inline]] void add(T* sums, int64_t column, int64_t offset, int64_t columns) const {
    if (kernel_.scale != 1.0)
      for (int64_t j = 0; j < columns; ++j) sums[j] *= static_cast<T>(kernel_.scale);
    if (kernel_.bias) {
      const S* bias = kernel_.bias.as<S>() + column;
      for (int64_t j = 0; j < columns; ++j) sums[j] += static_cast<T>(bias[j]);
    }
    if (kernel_.residual) {
      const Y* residual = kernel_.residual.as<Y>() + offset;
      for (int64_t j = 0; j < columns; ++j) sums[j] += static_cast<T>(residual[j]);
    }
  }

  template <int64_t width>
  void write(Y* to, const T* tile, int64_t rows, int64_t columns) const {
    if (columns == width)
      for (int64_t i = 0; i < rows; ++i) convert(to + i * n_, tile + i * width, width);
    else
      for (int64_t i = 0; i < rows; ++i) convert(to + i * n_, tile + i * width, columns);
  }

  /// Reads x[rows][width] and pads it with zeros.
  template <int64_t width>
  void read(T* x, const Y* from, int64_t rows, int64_t columns) const {
    for (int64_t i = 0; i < rows; ++i) {
      convert(x + i * width, from + i * n_, columns);
      for (int64_t j = columns; j < width; ++j) x[i * width + j] = T{0};
    }
  }

  /// Inlined convert_values(). For a row of a tile a call of memmove() would take as long as the copy.
  template <class To, class From>
  [[gnu::always_inline]] static void convert(To* to, const From* from, int64_t columns) {
    for (int64_t j = 0; j < columns; ++j) to[j] = static_cast<To>(from[j]);
  }

  void activate(T* x, int64_t count) const {
    kernel_.activation == Activation::gelu_tanh ? gelu::forward<Gelu::tanh>(x, x, count)
                                                : gelu::forward<Gelu::erf>(x, x, count);
  }
  void multiply_slopes(T* dy, const T* x, int64_t count) const {
    kernel_.activation == Activation::gelu_tanh_backward ? gelu::backward<Gelu::tanh>(x, dy, dy, count)
                                                         : gelu::backward<Gelu::erf>(x, dy, dy, count);
  }

  const MatMul& kernel_;
  int64_t n_;
};

}  // namespace lockstep
