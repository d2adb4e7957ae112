// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/broadcast.h"
#include "lockstep/kernels/kernel.h"

namespace lockstep {

/// c = op(a) . op(b) for every pair of matrices. The last two dimensions are a matrix, and the dimensions
/// before them are broadcast(). On a CPU the bits are those of MatMul. In fp32 a GPU gives the CPU's bits,
/// except for large products. It runs each of these as a MatMul with MatMul's plans, one after the other.
struct BatchedMatMul {
  static constexpr const char* name = "batched_matmul";
  View a;  ///< [..., m, k], or [..., k, m] with transpose_a
  View b;  ///< [..., k, n], or [..., n, k] with transpose_b
  View c;  ///< [..., m, n], no overlap with the inputs; f32 where a is 16 bits, or like a
  bool transpose_a = false;
  bool transpose_b = false;

  int64_t m() const { return a.shape[transpose_a ? -1 : -2]; }
  int64_t k() const { return a.shape[transpose_a ? -2 : -1]; }
  int64_t n() const { return b.shape[transpose_b ? -2 : -1]; }
  int64_t batch() const { return leading(c.shape).elements(); }

  /// Returns all dimensions but the last two.
  static Shape leading(const Shape& shape) {
    Shape result;
    for (int i = 0; i + 2 < shape.rank(); ++i) result.append(shape[i]);
    return result;
  }
  /// Returns the matrices of a and b from which each matrix of c is computed.
  BroadcastPlan<2> plan() const {
    return plan_broadcast<2>({leading(a.shape), leading(b.shape)}, leading(c.shape));
  }
  /// Returns matrix `number` of an operand.
  static View matrix(const View& operand, int64_t number) {
    const Shape& shape = operand.shape;
    const int64_t bytes_each = shape[-2] * shape[-1] * lockstep::bytes(operand.dtype);
    return {
        static_cast<std::byte*>(operand.data) + number * bytes_each, {shape[-2], shape[-1]}, operand.dtype};
  }

  void check() const {
    expect(a.shape.rank() >= 2 && b.shape.rank() >= 2 && k() == b.shape[transpose_b ? -1 : -2],
           "matmul: a is ", a.shape, transpose_a ? " (transposed)" : "", ", b is ", b.shape,
           transpose_b ? " (transposed)" : "", "; they must be [..., m, k] and [..., k, n]");
    Shape shape = broadcast(leading(a.shape), leading(b.shape), name);
    shape.append(m());
    shape.append(n());
    expect(c.shape == shape, "matmul: a is ", a.shape, ", b is ", b.shape, ", which makes ", shape,
           ", but c is ", c.shape);
    expect(b.dtype == a.dtype && (c.dtype == a.dtype || c.dtype == accumulator_dtype(a.dtype)), "a is ",
           a.dtype, ", b is ", b.dtype, ", c is ", c.dtype);
  }
};
int64_t scratch_bytes(CpuStream, const BatchedMatMul&);
void run(CpuStream, const BatchedMatMul&);
void run(CudaStream, const BatchedMatMul&);

}  // namespace lockstep
