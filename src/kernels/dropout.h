// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/kernel.h"
#include "lockstep/kernels/random.h"

namespace lockstep {

/// y = x / (1 - probability) for an element that is kept, else 0. Element e of sample i is kept if its word
/// is at least round(65536 probability). The word is 16-bit word e % 8 of philox<7>(derive_key(seed, site,
/// 0), {e / 8 low, e / 8 high, sample + i, step}). Word j is the low (even j) or high half of 32-bit word
/// j / 2. The gradient is the same kernel on dy.
struct Dropout {
  static constexpr const char* name = "dropout";
  View x;  ///< [samples, ...]
  View y;  ///< like x; may alias x
  double probability = 0.0;
  RandomKey key;

  void check() const {
    expect(x.shape.rank() >= 1 && y.shape == x.shape && y.dtype == x.dtype, "y is ", y.shape, ", x is ",
           x.shape);
    expect(probability >= 0.0 && probability < 1.0, "the dropout probability is ", probability,
           ", not in [0, 1)");
  }
};
void run(CpuStream, const Dropout&);
void run(CudaStream, const Dropout&);

}  // namespace lockstep
