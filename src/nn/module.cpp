// SPDX-License-Identifier: Apache-2.0
#include "lockstep/nn/module.h"

#include <cstdlib>
#include <cxxabi.h>
#include <set>
#include <typeinfo>

namespace lockstep {
namespace {

/// Returns the name of a class without its namespaces.
std::string class_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), std::free);
  const std::string name = text ? text.get() : type.name();
  const size_t end = name.rfind("::");
  return end == std::string::npos ? name : name.substr(end + 2);
}

}  // namespace

Module::~Module() { contents_->is_destroyed = true; }

std::vector<NamedTensor> Module::parameters(const std::string& prefix) const {
  std::vector<NamedTensor> all;
  contents_->list(prefix, all);
  return all;
}

void Module::Contents::list(const std::string& prefix, std::vector<NamedTensor>& all) const {
  for (const NamedTensor& parameter : parameters) all.push_back({prefix + parameter.name, parameter.tensor});
  for (const auto& [name, part] : parts) {
    require(
        !part->is_destroyed, "the part \"", prefix, name,
        "\" was destroyed, so the model cannot use its parameters: make it a member, or let the module own "
        "it by add_part<Type>(\"",
        name, "\", ...)");
    part->list(prefix + name + ".", all);
  }
}

Tensor Module::add_parameter(const std::string& name, const Shape& shape, const InitialValues& values,
                             DType dtype) {
  // While a class is constructed, its object has that type.
  Tensor tensor =
      Tensor::declare(shape, dtype, current_stream(), values, class_name(typeid(*this)) + "." + name);
  tensor.set_requires_grad();
  contents_->parameters.push_back({name, tensor});
  return tensor;
}

void Module::add_part(const std::string& name, const Module& part) {
  contents_->parts.emplace_back(name, part.contents_);
}

int64_t count_parameters(const std::vector<NamedTensor>& parameters) {
  std::set<const void*> seen;
  int64_t elements = 0;
  for (const NamedTensor& parameter : parameters)
    if (seen.insert(parameter.tensor.id()).second) elements += parameter.tensor.size();
  return elements;
}

}  // namespace lockstep
