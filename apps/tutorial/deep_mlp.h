// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "lockstep/nn/layers.h"
#include "lockstep/nn/module.h"
#include "lockstep/tensor/checkpoint.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {

/// The model of the tutorial's steps 5 and 6: Linear(20, width), 16 residual layers with ReLU and dropout,
/// and Linear(width, 1).
class DeepMlp : public Module {
 public:
  explicit DeepMlp(int64_t width = 128) : first_(add_part<Linear>("first", 20, width)) {
    for (int i = 0; i < 16; ++i) layers_.push_back(&add_part<Linear>(concat("layers.", i), width, width));
    last_ = &add_part<Linear>("last", width, 1);
  }

  /// Maps [samples, 20] to [samples, 1], both f32 for every compute dtype. The layers run in `segments`
  /// segments. The backward recomputes all segments but the last.
  Tensor operator()(const Tensor& x, int64_t segments, const Context& context) const {
    std::vector<std::function<Tensor(const Tensor&)>> layers;
    for (const Linear* layer : layers_)
      layers.emplace_back([layer, key = context.key(static_cast<uint32_t>(layers.size()))](const Tensor& y) {
        return (*layer)(dropout(relu(y), 0.1, key), /*residual=*/y);
      });
    const Tensor y = first_(convert(x, first_.weight().compute_dtype()));
    return convert((*last_)(checkpoint_sequential(layers, segments, y)), x.dtype());
  }

 private:
  Linear& first_;
  std::vector<Linear*> layers_;
  Linear* last_;
};

}  // namespace lockstep
