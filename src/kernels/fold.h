// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "lockstep/kernels/kernel.h"

namespace lockstep {

/// y = scale * the result of a stack program. A number pushes the input with that index. `add` replaces the
/// two topmost values (left below right) by left + right. A tree over replicas is such a program. Every
/// backend gives the same bits.
struct Fold {
  static constexpr const char* name = "fold";
  static constexpr int add = -1;
  std::vector<View> inputs;  ///< f32, any shapes with y's number of elements
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

  /// Returns the largest number of values on the stack. Throws Error if the program is not valid for these
  /// inputs.
  int deepest() const {
    int depth = 0, deepest = 0;
    for (const int step : program) {
      expect(step == add || (step >= 0 && step < static_cast<int>(inputs.size())), "a fold of ",
             inputs.size(), " inputs pushes input ", step);
      depth += step == add ? -1 : 1;
      expect(depth >= 1, "a fold adds with fewer than two values on its stack");
      deepest = std::max(deepest, depth);
    }
    expect(program.empty() || depth == 1, "a fold must end with one value, not ", depth);
    return deepest;
  }
};
void run(CpuStream, const Fold&);
void run(CudaStream, const Fold&);

}  // namespace lockstep
