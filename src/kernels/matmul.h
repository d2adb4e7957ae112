// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/kernel.h"

namespace lockstep {

/// What MatMul applies to a finished element; the two GELUs are those of GeluForward, bit for bit.
enum class Activation { none, gelu_tanh, gelu_erf };

/// c = activation(op(a) . op(b) + bias), op(a) [m, k], op(b) [k, n]; op transposes the stored matrix where
/// its flag is set. All operands are f32, or all f64. The bits of c[i, j] are a function of k, row i of
/// op(a), column j of op(b), bias[j] and activation alone: one chain of fused multiply-adds per fixed block
/// of k.
struct MatMul {
  static constexpr const char* name = "matmul";
  View a = {};               ///< [m, k], or [k, m] with transpose_a; leading dimensions fold into the rows
  View b = {};               ///< [k, n], or [n, k] with transpose_b; likewise
  View bias = {};            ///< optional, [n]
  View c = {};               ///< [m, n], likewise; must not overlap the inputs
  View pre_activation = {};  ///< optional, like c: receives the value before the activation
  bool transpose_a = false;
  bool transpose_b = false;
  Activation activation = Activation::none;

  int64_t m() const { return transpose_a ? a.shape[-1] : rows(a); }
  int64_t k() const { return transpose_a ? rows(a) : a.shape[-1]; }
  int64_t n() const { return transpose_b ? rows(b) : b.shape[-1]; }

  void check() const {
    expect(a.shape.rank() > 0 && b.shape.rank() > 0 && c.shape.rank() > 0, "matmul of a ", a.shape, ", b ",
           b.shape, " into c ", c.shape, ": scalars are no matrices");
    const int64_t inner = transpose_b ? b.shape[-1] : rows(b);
    expect(k() == inner, "matmul of a ", a.shape, flag(transpose_a), " and b ", b.shape, flag(transpose_b),
           ": ", k(), " and ", inner, " inner elements");
    expect(rows(c) == m() && c.shape[-1] == n(), "matmul of a ", a.shape, flag(transpose_a), " and b ",
           b.shape, flag(transpose_b), " is [", m(), ", ", n(), "], but c is ", c.shape);
    expect(!bias || (bias.shape == Shape{n()}), "bias is ", bias.shape, " for ", n(), " columns of c");
    expect(!pre_activation || pre_activation.shape == c.shape, "pre_activation is ", pre_activation.shape,
           ", c is ", c.shape);
    expect(c.dtype == DType::f32 || c.dtype == DType::f64, "c is ", c.dtype, "; f32 or f64 is needed");
    for (const View* operand : {&a, &b, &bias, &pre_activation})
      expect(!*operand || operand->dtype == c.dtype, "an operand is ", operand->dtype, ", c is ", c.dtype);
  }

 private:
  static int64_t rows(const View& matrix) {
    int64_t product = 1;
    for (int i = 0; i + 1 < matrix.shape.rank(); ++i) product *= matrix.shape[i];
    return product;
  }
  static const char* flag(bool transposed) { return transposed ? " (transposed)" : ""; }
};
void run(CpuStream, const MatMul&);
void run(CudaStream, const MatMul&);

/// y[j] = sum over rows of x[., j], added in fixed blocks of rows: the gradient of a bias.
struct ColumnSum {
  static constexpr const char* name = "column_sum";
  View x = {};  ///< [rows, columns], leading dimensions folded; f32 or f64
  View y = {};  ///< [columns]

  void check() const {
    expect(x.shape.rank() > 0 && y.shape == Shape{x.shape[-1]}, "y is ", y.shape, " for the column sums of ",
           x.shape);
    expect(x.dtype == DType::f32 || x.dtype == DType::f64, "x is ", x.dtype, "; f32 or f64 is needed");
    expect(y.dtype == x.dtype, "y is ", y.dtype, ", x is ", x.dtype);
  }
};
void run(CpuStream, const ColumnSum&);
void run(CudaStream, const ColumnSum&);

}  // namespace lockstep
