// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/kernel.h"

namespace lockstep {

/// losses[i] = log(sum(exp(logits[i]))) - logits[i, targets[i]] and, in the same pass, dlogits =
/// (softmax(logits)
/// - onehot(targets)) * gradient_scale. Rows whose target is `ignore_index` give zeros. On the CPU run()
/// throws Error for any other target outside [0, classes), before it writes anything.
struct CrossEntropy {
  static constexpr const char* name = "cross_entropy";
  View logits;   ///< [..., classes]
  View targets;  ///< i32, one a row
  View losses;   ///< one a row
  View dlogits;  ///< like logits, optional; may alias logits
  int32_t ignore_index = -1;
  double gradient_scale = 1.0;

  void check() const {
    const int64_t rows = logits.shape.rows();
    expect(logits.shape.rank() >= 1 && targets.size() == rows && losses.size() == rows, "targets are ",
           targets.shape, ", losses are ", losses.shape, ", logits are ", logits.shape);
    expect(losses.dtype == logits.dtype, "losses are ", losses.dtype, ", logits are ", logits.dtype);
    expect(!dlogits || (dlogits.shape == logits.shape && dlogits.dtype == logits.dtype), "dlogits are ",
           dlogits.shape, ", logits are ", logits.shape);
  }
};
void run(CpuStream, const CrossEntropy&);
void run(CudaStream, const CrossEntropy&);

}  // namespace lockstep
