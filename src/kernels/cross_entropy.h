// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/kernel.h"

namespace lockstep {

/// losses[i] = log(sum(exp(logits[i]))) - logits[i, targets[i]]. The same pass computes dlogits =
/// (softmax(logits) - onehot(targets)) * gradient_scale * scale. Rows whose target is `ignore_index` give
/// zeros. For any other target outside [0, classes) the CPU's run() throws Error before it writes anything.
/// On a GPU the row's loss and dlogits are NaN.
struct CrossEntropy {
  static constexpr const char* name = "cross_entropy";
  View logits;        ///< [..., classes]
  View targets;       ///< i32, one per row
  View losses;        ///< one per row, f32 for 16-bit logits
  View dlogits = {};  ///< like logits, optional; may alias logits
  View scale = {};    ///< optional, one element of the dtype of losses; read where the kernel runs
  int32_t ignore_index = -1;
  double gradient_scale = 1.0;

  void check() const {
    const int64_t rows = logits.shape.rows();
    expect(logits.shape.rank() >= 1 && targets.size() == rows && losses.size() == rows, "targets are ",
           targets.shape, ", losses are ", losses.shape, ", logits are ", logits.shape);
    expect(losses.dtype == accumulator_dtype(logits.dtype), "losses are ", losses.dtype, ", logits are ",
           logits.dtype);
    expect(targets.dtype == DType::i32, "targets are ", targets.dtype, ", not i32");
    expect(!scale || (scale.size() == 1 && scale.dtype == losses.dtype), "scale is ", scale.shape, " ",
           scale.dtype, ", not one ", losses.dtype);
    expect(!dlogits || (dlogits.shape == logits.shape && dlogits.dtype == logits.dtype), "dlogits are ",
           dlogits.shape, ", logits are ", logits.shape);
  }
};
void run(CpuStream, const CrossEntropy&);
void run(CudaStream, const CrossEntropy&);

/// y = 1 / (the number of targets that are not `ignore_index`), divided in double. Without such targets y is
/// 0, so a mean over no target and its gradient are 0.
struct InverseCount {
  static constexpr const char* name = "inverse_count";
  View targets;  ///< i32, any shape
  int32_t ignore_index = -1;
  View y;  ///< one element, f32 or f64

  void check() const {
    expect(targets.dtype == DType::i32, "targets are ", targets.dtype, ", not i32");
    expect(y.size() == 1 && (y.dtype == DType::f32 || y.dtype == DType::f64), "y is ", y.shape, " ", y.dtype,
           ", not one f32 or f64");
  }
};
void run(CpuStream, const InverseCount&);
void run(CudaStream, const InverseCount&);

}  // namespace lockstep
