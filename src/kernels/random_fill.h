// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/kernel.h"

namespace lockstep {

/// y ~ N(mean, std^2) by Box-Muller on the words of philox<10>(derive_key(seed, stream_id,
/// initialization_lane), {i / 4 low, i / 4 high, 0, 0}): element i of the draw is a function of (seed,
/// stream_id, i) alone, computed in double and rounded once. y may be any part of the draw.
struct FillNormal {
  static constexpr const char* name = "fill_normal";
  View y;  ///< any shape, any float dtype
  double mean = 0.0;
  double std = 1.0;
  uint64_t seed = 0;
  uint32_t stream_id = 0;  ///< the parameter's place in the model
  int64_t first = 0;       ///< y holds elements [first, first + y.size()) of the draw

  void check() const {
    expect(std >= 0.0, "a standard deviation of ", std);
    expect(first >= 0, "a draw from element ", first);
  }
};
void run(CpuStream, const FillNormal&);
void run(CudaStream, const FillNormal&);

/// y ~ U[low, high) from word i % 4 of the same generator.
struct FillUniform {
  static constexpr const char* name = "fill_uniform";
  View y;  ///< any shape, any float dtype
  double low = 0.0;
  double high = 1.0;
  uint64_t seed = 0;
  uint32_t stream_id = 0;  ///< the parameter's place in the model
  int64_t first = 0;       ///< y holds elements [first, first + y.size()) of the draw

  void check() const {
    expect(low <= high, "an interval from ", low, " to ", high);
    expect(first >= 0, "a draw from element ", first);
  }
};
void run(CpuStream, const FillUniform&);
void run(CudaStream, const FillUniform&);

}  // namespace lockstep
