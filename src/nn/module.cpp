// SPDX-License-Identifier: Apache-2.0
#include "nn/module.h"

#include <cmath>
#include <set>

#include "core/text.h"
#include "tensor/create.h"
#include "tensor/ops.h"

namespace lockstep {

InitialValues transposed_normal_values(const Shape& shape, double std, uint64_t seed, uint32_t stream_id) {
  const int64_t rows = shape[0], columns = shape[1];
  return {.fill =
              [=](const Tensor& part, int64_t first) {
                if (part.size() == 0) return;
                // Only the rows that contain the part are drawn. They are one run of each column.
                const int64_t begin = first / columns, end = (first + part.size() - 1) / columns + 1;
                const Tensor drawn = empty({columns, end - begin}, part.dtype(), part.stream());
                if (end - begin == rows)
                  fill_normal(drawn, 0.0, std, seed, stream_id);
                else
                  for (int64_t column = 0; column < columns; ++column)
                    fill_normal(drawn.slice(column, column + 1), 0.0, std, seed, stream_id,
                                column * rows + begin);
                const Tensor turned = transpose(drawn).reshape({drawn.size()});
                const int64_t skipped = first - begin * columns;
                copy(turned.slice(skipped, skipped + part.size()), part);
              },
          .name = concat("transposed normal ", rows, " ", columns, " ", exact_text(std), " ", seed, " ",
                         stream_id)};
}

InitialValues constant_values(double value) {
  return {.fill = [value](const Tensor& part, int64_t) { fill(part, value); },
          .name = "constant " + exact_text(value)};
}

InitialValues normal_values(double mean, double std, uint64_t seed, uint32_t stream_id) {
  return {.fill = [=](const Tensor& part,
                      int64_t first) { fill_normal(part, mean, std, seed, stream_id, first); },
          .name = concat("normal ", exact_text(mean), " ", exact_text(std), " ", seed, " ", stream_id)};
}

InitialValues uniform_values(double low, double high, uint64_t seed, uint32_t stream_id) {
  return {.fill = [=](const Tensor& part,
                      int64_t first) { fill_uniform(part, low, high, seed, stream_id, first); },
          .name = concat("uniform ", exact_text(low), " ", exact_text(high), " ", seed, " ", stream_id)};
}

void initialize_linears(const std::vector<NamedTensor>& parameters, uint64_t seed) {
  double bound = 0.0;
  for (size_t p = 0; p < parameters.size(); ++p) {
    const Tensor& tensor = parameters[p].tensor;
    if (tensor.shape().rank() == 2) bound = 1.0 / std::sqrt(static_cast<double>(tensor.shape()[1]));
    tensor.initialize(uniform_values(-bound, bound, seed, static_cast<uint32_t>(p)));
  }
}

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

int64_t count_parameters(const std::vector<NamedTensor>& parameters) {
  std::set<const void*> seen;
  int64_t elements = 0;
  for (const NamedTensor& parameter : parameters)
    if (seen.insert(parameter.tensor.id()).second) elements += parameter.tensor.size();
  return elements;
}

}  // namespace lockstep
