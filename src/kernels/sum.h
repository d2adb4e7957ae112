// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <vector>

#include "lockstep/kernels/kernel.h"

namespace lockstep {

/// Number of elements in a block of a sum. Blocks begin at the start of a tensor or a flat space. So a cut at
/// a multiple of this number does not change the bits.
inline constexpr int64_t sum_block = 4096;

/// y = the sum of x. Each block is added in the dtype of x (16-bit floats in f32) by 32 fixed lanes, and the
/// blocks are added in f64. A block's sum has the same bits on every backend. The CPU adds the blocks in
/// order, a GPU by 1024 fixed lanes. Nothing else affects the bits, neither alignment nor the kind of GPU.
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

/// DimensionSum adds rows of `inner` > 1 columns in order, in runs of sum_rows. Then it adds the runs of a
/// block of sum_block_rows in order. Finally it adds the blocks in order, in f64.
inline constexpr int64_t sum_rows = 64;
inline constexpr int64_t sum_block_rows = 1024;

/// y[o, i] = the sum of x[o, n, i] over n. Contiguous terms (inner = 1) are added in the blocks of Sum. The
/// bits are the same on every backend. The bits of y[o, i] depend only on its own terms.
struct DimensionSum {
  static constexpr const char* name = "dimension_sum";
  View x;             ///< [outer, count, inner], stored in any shape
  View y;             ///< [outer, inner], stored in any shape; f32 for 16-bit x
  int64_t count = 0;  ///< may be 0: y is 0
  int64_t inner = 1;  ///< at least 1, unless y has no elements

  int64_t outer() const { return inner == 0 ? 0 : y.size() / inner; }
  void check() const {
    expect(y.size() == outer() * inner && x.size() == y.size() * count, "x is ", x.shape, " and y is ",
           y.shape, ": not [outer, ", count, ", ", inner, "] and [outer, ", inner, "]");
    expect(y.dtype == accumulator_dtype(x.dtype), "y is ", y.dtype, ", x is ", x.dtype);
  }
};
int64_t scratch_bytes(CpuStream, const DimensionSum&);
void run(CpuStream, const DimensionSum&);
void run(CudaStream, const DimensionSum&);

/// y[b] = the sum of the squares of block b - shift of x, in f64, for the blocks b of the given ranges. The
/// other blocks of y do not change. A block's sum has the same bits on every backend, wherever x is cut and
/// wherever its parts are stored.
struct BlockSquares {
  static constexpr const char* name = "block_squares";
  /// Blocks [first, last) of y, from blocks [first - shift, last - shift) of x.
  struct Blocks {
    int64_t first = 0;
    int64_t last = 0;
    int64_t shift = 0;  ///< positive, zero or negative
  };
  View x;                      ///< any shape, f32; f64 on the CPU only; its last block may be short
  View y;                      ///< f64, one element for each block
  std::vector<Blocks> ranges;  ///< not empty, ascending

  void check() const {
    expect(x.dtype == DType::f32 || x.dtype == DType::f64, "f32 or f64 is needed, not ", x.dtype);
    expect(y.dtype == DType::f64, "y is ", y.dtype);
    const int64_t x_blocks = (x.size() + sum_block - 1) / sum_block;
    for (const auto& [first, last, shift] : ranges) {
      expect(0 <= first && first < last && last <= y.size(), "blocks [", first, ", ", last,
             ") of y, which has ", y.size());
      expect(shift <= first && last - shift <= x_blocks, "blocks [", first - shift, ", ", last - shift,
             ") of x, which has ", x_blocks);
    }
  }
};
void run(CpuStream, const BlockSquares&);
void run(CudaStream, const BlockSquares&);

/// Returns the factor that limits a norm to `max_norm`: min(1, max_norm / (norm + 1e-6)) / scale, in f64 and
/// rounded once. The formula is that of PyTorch's clip_grad_norm_. It returns 1 / scale if max_norm is 0
/// (off). It returns NaN if the norm is not finite. NaN skips a step.
constexpr float clip_factor(double norm, double max_norm, double scale = 1.0) {
  const bool is_finite = norm - norm == 0.0;
  if (!is_finite) return std::numeric_limits<float>::quiet_NaN();
  const double ratio = max_norm / (norm + 1e-6);
  return static_cast<float>((max_norm > 0.0 && ratio < 1.0 ? ratio : 1.0) / scale);
}

/// norm = sqrt(the sum of `squares`) / scale, and factor = clip_factor(norm, max_norm, scale). `squares` are
/// added as the blocks of Sum are. The gradients that they come from are multiplied by `scale`.
struct ClipFactor {
  static constexpr const char* name = "clip_factor";
  View squares;  ///< f64, any number: BlockSquares of all blocks
  double max_norm = 0.0;
  View norm;        ///< f64, one element, written
  View factor;      ///< f32, one element, written
  View scale = {};  ///< optional, f32, one element

  void check() const {
    expect(max_norm >= 0.0, "max_norm must be at least 0, not ", max_norm);
    expect(squares.dtype == DType::f64, "squares are ", squares.dtype);
    expect(norm.size() == 1 && norm.dtype == DType::f64, "the norm is ", norm.shape, " ", norm.dtype);
    expect(factor.size() == 1 && factor.dtype == DType::f32, "the factor is ", factor.shape, " ",
           factor.dtype);
    expect(!scale || (scale.size() == 1 && scale.dtype == DType::f32), "the scale is ", scale.shape, " ",
           scale.dtype);
  }
};
void run(CpuStream, const ClipFactor&);
void run(CudaStream, const ClipFactor&);

}  // namespace lockstep
