// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/kernel.h"

namespace lockstep {

/// y[t] = the cosines, then the sines, of position t times each frequency (Su et al. 2021, eq. 34). The angle
/// is rounded to the dtype of y before its cosine is computed. Each result is within 1 ulp, and has the same
/// bits on every backend.
struct RotaryTable {
  static constexpr const char* name = "rotary_table";
  View frequencies;     ///< [size / 2], f32 or f64: radians per position
  View positions = {};  ///< i32, [tokens], not negative; empty: 0, 1, 2, ...
  View y;               ///< [tokens, size], like frequencies

  int64_t tokens() const { return y.shape[0]; }
  int64_t half() const { return frequencies.size(); }

  void check() const {
    expect(frequencies.dtype == DType::f32 || frequencies.dtype == DType::f64, "frequencies are ",
           frequencies.dtype, "; f32 or f64 is needed");
    expect(y.shape.rank() == 2 && y.shape[1] == 2 * half() && y.dtype == frequencies.dtype, "y is ", y.shape,
           " ", y.dtype, " for ", half(), " frequencies of ", frequencies.dtype);
    expect(!positions || (positions.dtype == DType::i32 && positions.size() == tokens()), "positions are ",
           positions.shape, " ", positions.dtype, " for ", tokens(), " tokens");
  }
};
void run(CpuStream, const RotaryTable&);
void run(CudaStream, const RotaryTable&);

/// Rotates each head of each row by the angles of the row's token. As in Hugging Face's Llama, elements i and
/// i + size / 2 of a head are a point of the plane. With a = x[i] and b = x[i + size / 2] it becomes
/// (a cos - b sin, b cos + a sin). The first product of each sum is fused. The gradient is the opposite
/// rotation.
struct Rotate {
  static constexpr const char* name = "rotate";
  View x;                ///< [..., heads * size]; row r belongs to token r % tokens
  View table;            ///< [tokens, size] of RotaryTable, f32 for 16-bit x, else like x
  View y;                ///< like x; may alias x
  bool inverse = false;  ///< rotates by the negative angles

  int64_t size() const { return table.shape[1]; }

  void check() const {
    expect(table.shape.rank() == 2 && table.shape[1] > 0 && table.shape[1] % 2 == 0 &&
               table.dtype == accumulator_dtype(x.dtype),
           "the table is ", table.shape, " ", table.dtype, "; [tokens, size] ", accumulator_dtype(x.dtype),
           " is needed, with an even size");
    expect(x.shape.rank() >= 1 && x.shape[-1] % size() == 0, "x is ", x.shape, " for heads of ", size());
    expect(x.size() == 0 || (table.shape[0] > 0 && x.shape.rows() % table.shape[0] == 0), "x has ",
           x.shape.rows(), " rows, the table has ", table.shape[0], "; they must be a whole number of texts");
    expect(y.shape == x.shape && y.dtype == x.dtype, "y is ", y.shape, " ", y.dtype, ", x is ", x.shape, " ",
           x.dtype);
  }
};
void run(CpuStream, const Rotate&);
void run(CudaStream, const Rotate&);

}  // namespace lockstep
