// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace lockstep {

/// Linear warm-up, then a cosine down to a floor (Loshchilov & Hutter 2017), in nanoGPT's form.
struct CosineSchedule {
  double peak = 1e-3;
  double floor = 0.0;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;  ///< the step at which the floor is reached; 0 keeps the peak

  /// The learning rate of iteration `step`, counted from 0.
  double at(int64_t step) const;
};

}  // namespace lockstep
