// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/kernel.h"

namespace lockstep {

/// y ~ N(mean, std^2) by Box-Muller on the words of philox<10>(derive_key(seed, stream_id,
/// initialization_lane), {i / 4 low, i / 4 high, 0, 0}). Element i of the draw depends only on (seed,
/// stream_id, i). It is computed in double and rounded once. y may be any part of the draw.
struct FillNormal {
  static constexpr const char* name = "fill_normal";
  View y;  ///< any shape, any float dtype
  double mean = 0.0;
  double std = 1.0;
  uint64_t seed = 0;
  uint32_t stream_id = 0;  ///< the parameter's position in the model
  int64_t first = 0;       ///< y holds elements [first, first + y.size()) of the draw

  void check() const {
    expect(std >= 0.0, "the standard deviation must be at least 0, not ", std);
    expect(first >= 0, "a draw begins at element 0 or later, not at ", first);
  }
};
void run(CpuStream, const FillNormal&);
void run(CudaStream, const FillNormal&);

/// y ~ U[low, high). Element i of the draw uses word i % 4 of philox<10>(derive_key(seed, stream_id,
/// initialization_lane), {i / 4 low, i / 4 high, 0, 0}).
struct FillUniform {
  static constexpr const char* name = "fill_uniform";
  View y;  ///< any shape, any float dtype
  double low = 0.0;
  double high = 1.0;
  uint64_t seed = 0;
  uint32_t stream_id = 0;  ///< the parameter's position in the model
  int64_t first = 0;       ///< y holds elements [first, first + y.size()) of the draw

  void check() const {
    expect(low <= high, "low is ", low, "; it must not exceed high, which is ", high);
    expect(first >= 0, "a draw begins at element 0 or later, not at ", first);
  }
};
void run(CpuStream, const FillUniform&);
void run(CudaStream, const FillUniform&);

}  // namespace lockstep
