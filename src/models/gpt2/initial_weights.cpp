// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/gpt2/initial_weights.h"

#include <cmath>

#include "lockstep/nn/module.h"

namespace lockstep {

bool is_in_out(const std::string& parameter) {
  return parameter.ends_with(".c_attn.weight") || parameter.ends_with(".c_fc.weight") ||
         parameter.ends_with(".c_proj.weight");
}

void initialize_like_gpt2(const std::vector<NamedTensor>& parameters, int64_t layers, uint64_t seed) {
  for (size_t p = 0; p < parameters.size(); ++p) {
    const auto& [name, tensor] = parameters[p];
    if (name.ends_with(".bias")) tensor.initialize(constant_values(0.0));
    if (tensor.shape().rank() != 2) continue;
    const auto stream_id = static_cast<uint32_t>(p);
    const bool ends_branch = name.ends_with("c_proj.weight");
    const double std = ends_branch ? 0.02 / std::sqrt(2.0 * static_cast<double>(layers)) : 0.02;
    tensor.initialize(is_in_out(name) ? transposed_normal_values(tensor.shape(), std, seed, stream_id)
                                      : normal_values(0.0, std, seed, stream_id));
  }
}

}  // namespace lockstep
