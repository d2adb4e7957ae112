// SPDX-License-Identifier: Apache-2.0
#include "lockstep/nn/initial_values.h"

#include <cmath>
#include <set>

#include "lockstep/core/text.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"

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
          .name = "constant " + exact_text(value),
          .are_zero = value == 0.0};
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

InitialValues normal_values(double mean, double std) {
  return {.fill = {}, .name = {}, .with_seed = [=](uint64_t seed, uint32_t place) {
            return normal_values(mean, std, seed, place);
          }};
}

InitialValues uniform_values(double low, double high) {
  return {.fill = {}, .name = {}, .with_seed = [=](uint64_t seed, uint32_t place) {
            return uniform_values(low, high, seed, place);
          }};
}

InitialValues linear_values(int64_t inputs) {
  const double bound = inputs > 0 ? 1.0 / std::sqrt(static_cast<double>(inputs)) : 0.0;
  return uniform_values(-bound, bound);
}

void initialize(const std::vector<NamedTensor>& parameters, uint64_t seed) {
  std::set<const void*> seen;  // a tied tensor keeps its first place
  for (size_t p = 0; p < parameters.size(); ++p)
    if (seen.insert(parameters[p].tensor.id()).second)
      parameters[p].tensor.initialize_with_seed(seed, static_cast<uint32_t>(p));
}

}  // namespace lockstep
