// SPDX-License-Identifier: Apache-2.0
#include "nn/module.h"

#include <cmath>
#include <set>

#include "tensor/create.h"
#include "tensor/ops.h"

namespace lockstep {

std::vector<NamedTensor> Module::parameters(const std::string& prefix) const {
  std::vector<NamedTensor> all;
  for (const NamedTensor& parameter : own_) all.push_back({prefix + parameter.name, parameter.tensor});
  for (const auto& [name, part] : parts_) {
    const std::vector<NamedTensor> of_part = part->parameters(prefix + name + ".");
    all.insert(all.end(), of_part.begin(), of_part.end());
  }
  return all;
}

Tensor Module::add_parameter(const std::string& name, const Shape& shape, DType dtype) {
  const MemoryScope scope("parameters");
  Tensor tensor = zeros(shape, dtype);
  tensor.set_requires_grad();
  own_.push_back({name, tensor});
  return tensor;
}

void Module::add_part(const std::string& name, const Module& part) { parts_.emplace_back(name, &part); }

int64_t count_parameters(const std::vector<NamedTensor>& parameters) {
  std::set<const void*> seen;
  int64_t elements = 0;
  for (const NamedTensor& parameter : parameters)
    if (seen.insert(parameter.tensor.id()).second) elements += parameter.tensor.size();
  return elements;
}

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
