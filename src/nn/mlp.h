// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "nn/layers.h"

namespace lockstep {

/// Fully connected layers of these widths with ReLU between them; {20, 1} is one Linear(20, 1).
class Mlp : public Module {
 public:
  explicit Mlp(const std::vector<int64_t>& widths);

  /// [batch, widths.front()] -> [batch, widths.back()].
  Tensor operator()(const Tensor& x) const;

 private:
  std::vector<std::unique_ptr<Linear>> layers_;
};

}  // namespace lockstep
