// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/kernel.h"

namespace lockstep {

/// The function that MatMul applies to a finished sum s. It is s itself, a GELU as in GeluForward (bit for
/// bit on a CPU), or s * gelu'(pre_activation) as in GeluBackward. Between 16-bit tensors s is not rounded
/// first, unless a separate GPU kernel applies the function.
enum class Activation { none, gelu_tanh, gelu_erf, gelu_tanh_backward, gelu_erf_backward };

constexpr bool is_backward(Activation activation) {
  return activation == Activation::gelu_tanh_backward || activation == Activation::gelu_erf_backward;
}

/// c = activation(scale * op(a) . op(b) + bias) + residual, with op(a) [m, k] and op(b) [k, n]. The operator
/// op transposes the stored matrix if its flag is set. The operands a, b and bias have one float dtype, on a
/// GPU not f64. Operands of 16 bits are computed in fp32 and rounded once.
///
/// On a CPU the bits of c[i, j] depend only on k and its terms: one chain of fused multiply-adds per fixed
/// block of k. With uses_bf16_unit(), AMX adds the terms of bf16 operands in its own order. On a GPU the bits
/// depend on the shapes, the values and the plan (matmul_plans.h).
struct MatMul {
  static constexpr const char* name = "matmul";
  View a = {};     ///< [m, k], or [k, m] with transpose_a; leading dimensions fold into the rows
  View b = {};     ///< [k, n], or [n, k] with transpose_b; leading dimensions fold into the rows
  View bias = {};  ///< optional, [n]; not with a backward activation
  View c = {};     ///< [m, n], leading dimensions folded; no overlap with inputs; f32 for 16-bit a, or like a
  View pre_activation = {};  ///< optional, like c: receives a GELU's input; a backward GELU reads it
  View residual = {};        ///< optional, like c, may be c itself; without activation and pre_activation
  View column_sum = {};  ///< optional, [n], f32 for 16-bit b: receives ColumnSum of b; not with transpose_b
  bool transpose_a = false;
  bool transpose_b = false;
  Activation activation = Activation::none;
  double scale = 1.0;  ///< multiplies finished sums, in the type of the sums

  int64_t m() const { return transpose_a ? a.shape[-1] : a.shape.rows(); }
  int64_t k() const { return transpose_a ? a.shape.rows() : a.shape[-1]; }
  int64_t n() const { return transpose_b ? b.shape.rows() : b.shape[-1]; }

  void check() const {
    expect(a.shape.rank() > 0 && b.shape.rank() > 0 && c.shape.rank() > 0, "matmul of a ", a.shape, ", b ",
           b.shape, " into c ", c.shape, ": a scalar is not a matrix");
    const int64_t inner = transpose_b ? b.shape[-1] : b.shape.rows();
    expect(k() == inner, "matmul of a ", a.shape, flag(transpose_a), " and b ", b.shape, flag(transpose_b),
           ": inner extents ", k(), " and ", inner, " differ");
    expect(c.shape.rows() == m() && c.shape[-1] == n(), "matmul of a ", a.shape, flag(transpose_a), " and b ",
           b.shape, flag(transpose_b), " is [", m(), ", ", n(), "], but c is ", c.shape);
    expect(a.dtype != DType::i32 && b.dtype == a.dtype, "a is ", a.dtype, ", b is ", b.dtype,
           "; one floating-point dtype is needed");
    expect(c.dtype == a.dtype || c.dtype == accumulator_dtype(a.dtype), "c is ", c.dtype, ", a is ", a.dtype);
    check_additions();
    expect(!column_sum || (column_sum.shape == Shape{n()} && column_sum.dtype == accumulator_dtype(b.dtype) &&
                           !transpose_b),
           "column_sum is ", column_sum.shape, " ", column_sum.dtype, " for b ", b.shape, flag(transpose_b),
           " ", b.dtype);
  }

 private:
  void check_additions() const {
    expect(!bias || (bias.shape == Shape{n()} && bias.dtype == a.dtype && !is_backward(activation)),
           "bias is ", bias.shape, " ", bias.dtype, " for ", n(), " columns of c and ", a.dtype, " operands",
           is_backward(activation) ? ", and a backward activation takes none" : "");
    expect(!pre_activation || (pre_activation.shape == c.shape && pre_activation.dtype == c.dtype),
           "pre_activation is ", pre_activation.shape, " ", pre_activation.dtype, ", c is ", c.shape, " ",
           c.dtype);
    expect(pre_activation || c.size() == 0 || !is_backward(activation),
           "the gradient of a GELU needs pre_activation");
    expect(!residual || (residual.shape == c.shape && residual.dtype == c.dtype), "residual is ",
           residual.shape, " ", residual.dtype, ", c is ", c.shape, " ", c.dtype);
    expect(!residual || (activation == Activation::none && !pre_activation),
           "a residual needs Activation::none and no pre_activation");
  }
  static const char* flag(bool transposed) { return transposed ? " (transposed)" : ""; }
};
int64_t scratch_bytes(CpuStream, const MatMul&);
void run(CpuStream, const MatMul&);
void run(CudaStream, const MatMul&);

/// y[j] = sum over rows of x[., j], added in fixed blocks of rows. It is the gradient of a bias.
struct ColumnSum {
  static constexpr const char* name = "column_sum";
  View x = {};  ///< [rows, columns], leading dimensions folded
  View y = {};  ///< [columns], f32 for 16-bit x

  void check() const {
    expect(x.shape.rank() > 0 && y.shape == Shape{x.shape[-1]}, "y is ", y.shape, " for the column sums of ",
           x.shape);
    expect(x.dtype != DType::i32 && y.dtype == accumulator_dtype(x.dtype), "y is ", y.dtype, ", x is ",
           x.dtype);
  }
};
void run(CpuStream, const ColumnSum&);
void run(CudaStream, const ColumnSum&);

}  // namespace lockstep
