// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <vector>

#include "kernels/kernel.h"

namespace lockstep {

/// Elements in a block of a sum. Blocks begin at the start of each tensor, so a tensor may be cut at
/// multiples of this without a change of bits.
inline constexpr int64_t sum_block = 4096;

/// y = the sum of x: each block in the dtype of x (16-bit floats, on a GPU only: in f32) by 32 fixed lanes,
/// the blocks in f64. A block's sum has the same bits on every backend; blocks are added in order on the CPU,
/// by 1024 fixed lanes on a GPU. Nothing else shows in the bits, neither alignment nor the kind of GPU.
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

/// y = the sum of the squares of all elements of all inputs, in f64: the global gradient norm is its root.
/// The blocks of all inputs, one after another, are added as in Sum, with the same promise about bits. Inputs
/// in f64 are for the CPU only.
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

/// The factor that brings a norm down to at most `max_norm`: min(1, max_norm / (norm + 1e-6)), as PyTorch's
/// clip_grad_norm_ has it, in f64 and rounded once; 1 if max_norm is 0 (off). NaN, which skips a step, if the
/// norm is not finite.
constexpr float clip_factor(double norm, double max_norm) {
  const bool is_finite = norm - norm == 0.0;
  if (!is_finite) return std::numeric_limits<float>::quiet_NaN();
  const double ratio = max_norm / (norm + 1e-6);
  return static_cast<float>(max_norm > 0.0 && ratio < 1.0 ? ratio : 1.0);
}

/// norm = sqrt(sum_of_squares), and the clip_factor of it.
struct ClipFactor {
  static constexpr const char* name = "clip_factor";
  View sum_of_squares;  ///< f64, one element
  double max_norm = 0.0;
  View norm;    ///< f64, one element, written; may alias sum_of_squares
  View factor;  ///< f32, one element, written

  void check() const {
    expect(max_norm >= 0.0, "a largest norm of ", max_norm);
    for (const View* view : {&sum_of_squares, &norm})
      expect(view->size() == 1 && view->dtype == DType::f64, "a norm is ", view->shape, " ", view->dtype);
    expect(factor.size() == 1 && factor.dtype == DType::f32, "the factor is ", factor.shape, " ",
           factor.dtype);
  }
};
void run(CpuStream, const ClipFactor&);
void run(CudaStream, const ClipFactor&);

}  // namespace lockstep
