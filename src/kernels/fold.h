// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/kernel.h"

namespace lockstep {

/// y = scale * the result of a program for a stack of values: a number pushes that input, `add` replaces the
/// two topmost values (left below right) by left + right. A tree over replicas becomes such a program; every
/// backend gives the same bits.
struct Fold {
  static constexpr const char* name = "fold";
  static constexpr int add = -1;
  std::vector<View> inputs;  ///< f32, as many elements as y
  std::vector<int> program;  ///< leaves one value
  View y;                    ///< f32, any shape; may be one of the inputs
  float scale = 1.0f;

  void check() const {
    expect(y.dtype == DType::f32, "y is ", y.dtype, ", f32 is needed");
    for (const View& input : inputs)
      expect(input.size() == y.size() && input.dtype == y.dtype, "an input is ", input.shape, " ",
             input.dtype, ", y is ", y.shape);
    expect(deepest() >= 1, "a fold needs a program");
  }

  /// The most values that the program keeps at once. Throws Error if it is not a program for these inputs.
  int deepest() const {
    int depth = 0, deepest = 0;
    for (const int step : program) {
      expect(step == add || (step >= 0 && step < static_cast<int>(inputs.size())), "a fold of ",
             inputs.size(), " inputs pushes number ", step);
      depth += step == add ? -1 : 1;
      expect(depth >= 1, "a fold adds where there are no two values");
      deepest = std::max(deepest, depth);
    }
    expect(program.empty() || depth == 1, "a fold ends with one value, not ", depth);
    return deepest;
  }
};
void run(CpuStream, const Fold&);
void run(CudaStream, const Fold&);

}  // namespace lockstep
