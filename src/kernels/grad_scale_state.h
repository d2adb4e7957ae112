// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace lockstep {

/// A loss scale and the counters that choose it. The loss is multiplied by the scale, so that gradients do
/// not vanish in 16 bits.
struct GradScale {
  float scale = 65536.0f;
  int32_t growth_tracker = 0;  ///< good steps since the last growth or backoff
  int32_t skipped_steps = 0;
  bool operator==(const GradScale&) const = default;
};

/// The rule for changes of the scale. The defaults are PyTorch's constants.
struct GradScaleRule {
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int32_t growth_interval = 2000;  ///< good steps in a row
};

}  // namespace lockstep
