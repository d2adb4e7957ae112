// SPDX-License-Identifier: Apache-2.0
#include "lockstep/dist/parameters_hash.h"

#include <algorithm>
#include <bit>
#include <set>

#include "lockstep/core/hash.h"
#include "lockstep/tensor/create.h"

namespace lockstep {

static_assert(std::endian::native == std::endian::little, "the hash is defined on little-endian bytes");

namespace {

void add(Hasher& hasher, const std::string& name, const Shape& shape, const Tensor& values) {
  const Tensor on_cpu = to_stream(values, cpu_stream());
  hasher.add(std::as_bytes(std::span(name.c_str(), name.size() + 1)));
  for (const int64_t extent : shape) hasher.add(std::as_bytes(std::span(&extent, 1)));
  hasher.add({static_cast<const std::byte*>(on_cpu.view().data), static_cast<size_t>(on_cpu.view().bytes())});
}

}  // namespace

uint64_t parameters_hash(std::vector<NamedTensor> parameters) {
  std::ranges::sort(parameters, {}, &NamedTensor::name);
  Hasher hasher;
  std::set<const void*> seen;
  for (const auto& [name, tensor] : parameters)
    if (seen.insert(tensor.id()).second) add(hasher, name, tensor.shape(), tensor.detach());
  return hasher.value();
}

uint64_t parameters_hash(const ParameterSpace& space, DataParallel& data_parallel) {
  std::vector<const Parameter*> parameters;
  for (const Parameter& parameter : space.layout.parameters()) parameters.push_back(&parameter);
  std::ranges::sort(parameters, {}, &Parameter::name);
  Hasher hasher;
  int unit = -1;
  Tensor values;
  for (const Parameter* parameter : parameters) {
    if (const int its = space.layout.unit_of(parameter->place); its != unit) {
      unit = its;
      values = data_parallel.values.gather(unit);
    }
    const int64_t first = parameter->place.begin - space.layout.units()[static_cast<size_t>(unit)].begin;
    add(hasher, parameter->name, parameter->tensor.shape(),
        values.slice(first, first + parameter->place.size()));
  }
  return hasher.value();
}

}  // namespace lockstep
