// SPDX-License-Identifier: Apache-2.0
#include "nn/initialize.h"

#include <cmath>

#include "tensor/create.h"

namespace lockstep {

bool is_in_out(const std::string& parameter) {
  return parameter.ends_with(".c_attn.weight") || parameter.ends_with(".c_fc.weight") ||
         parameter.ends_with(".c_proj.weight");
}

void initialize_like_gpt2(const std::vector<NamedTensor>& parameters, int64_t layers, uint64_t seed) {
  for (size_t p = 0; p < parameters.size(); ++p) {
    const auto& [name, tensor] = parameters[p];
    if (tensor.shape().rank() != 2) continue;
    const bool ends_branch = name.ends_with("c_proj.weight");
    const double std = ends_branch ? 0.02 / std::sqrt(2.0 * static_cast<double>(layers)) : 0.02;
    const Shape out_in{tensor.shape()[1], tensor.shape()[0]};
    const Tensor drawn = is_in_out(name) ? empty(out_in, tensor.dtype(), tensor.stream()) : tensor;
    fill_normal(drawn, 0.0, std, seed, static_cast<uint32_t>(p));
    if (drawn.id() != tensor.id()) copy(transpose(drawn), tensor);
  }
}

void initialize_linears(const std::vector<NamedTensor>& parameters, uint64_t seed) {
  double bound = 0.0;
  for (size_t p = 0; p < parameters.size(); ++p) {
    const Tensor& tensor = parameters[p].tensor;
    if (tensor.shape().rank() == 2) bound = 1.0 / std::sqrt(static_cast<double>(tensor.shape()[1]));
    fill_uniform(tensor, -bound, bound, seed, static_cast<uint32_t>(p));
  }
}

}  // namespace lockstep
