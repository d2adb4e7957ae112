// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kernels/kernel.h"

namespace lockstep {

/// Elements in a block of a sum. Blocks begin at the start of each tensor, so a tensor may be cut at
/// multiples of this without a change of bits.
inline constexpr int64_t sum_block = 4096;

/// y = the sum of x: each block in the dtype of x by fixed lanes, the blocks in order in f64.
struct Sum {
  static constexpr const char* name = "sum";
  View x;  ///< any shape
  View y;  ///< one element, dtype of x

  void check() const {
    expect(y.size() == 1 && y.dtype == x.dtype, "y is ", y.shape, " ", y.dtype, ", x is ", x.shape, " ",
           x.dtype);
  }
};
void run(CpuStream, const Sum&);
void run(CudaStream, const Sum&);

/// y = the sum of the squares of all elements of all inputs, in f64, by blocks in order: the global gradient
/// norm is its root.
struct SumOfSquares {
  static constexpr const char* name = "sum_of_squares";
  std::vector<View> inputs;  ///< any shapes, f32 or f64
  View y;                    ///< f64, one element

  void check() const {
    expect(y.size() == 1 && y.dtype == DType::f64, "y is ", y.shape, " ", y.dtype);
    for (const View& input : inputs)
      expect(input.dtype == DType::f32 || input.dtype == DType::f64, "f32 or f64 is needed, not ",
             input.dtype);
  }
};
void run(CpuStream, const SumOfSquares&);
void run(CudaStream, const SumOfSquares&);

}  // namespace lockstep
