// SPDX-License-Identifier: Apache-2.0
#include "nn/module.h"

#include <set>

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

Tensor Module::add_parameter(const std::string& name, const Shape& shape, DType dtype,
                             const InitialValues& values) {
  Tensor tensor = Tensor::declare(shape, dtype, current_stream(), values);
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

}  // namespace lockstep
