// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "lockstep/nn/module.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {

inline constexpr double learning_rate = 0.05;
inline constexpr double max_norm = 0.3;  // clips some steps
inline constexpr int steps = 3;

inline Tensor parameter(const Shape& shape) { return zeros(shape).set_requires_grad(); }

/// A model with a few parameters of odd sizes. One has several blocks unless `width` is small. With `tied`,
/// another parameter is used twice and listed under two names. Declared parameters get the same values as
/// allocated ones. It computes in its space's precision.
struct TinyModel {
  bool tied;
  Tensor mix = zeros({7, 7});
  Tensor weight = zeros({33, 7});
  Tensor bias = zeros({33});
  Tensor wide;
  Tensor out;

  explicit TinyModel(uint64_t seed = 0, bool has_tied = true, bool is_declared = false, int64_t width = 401)
      : tied(has_tied), wide(zeros({width, 33})), out(zeros({3, width})) {
    uint32_t site = 0;
    for (Tensor* tensor : {&mix, &weight, &bias, &wide, &out}) {
      const InitialValues values = uniform_values(-0.7, 0.7, seed, site++);
      if (is_declared)
        *tensor = Tensor::declare(tensor->shape(), DType::f32, cpu_stream(), values);
      else
        tensor->initialize(values);
      tensor->set_requires_grad();
    }
  }

  std::vector<NamedTensor> parameters() const {
    std::vector<NamedTensor> all = {{"weight", weight}, {"bias", bias}, {"wide", wide}, {"out", out}};
    if (tied) {
      all.insert(all.begin(), {"mix", mix});
      all.push_back({"mix_again", mix});
    }
    return all;
  }

  Tensor loss(uint64_t batch) const {
    Tensor x = empty({5, 7}), y = empty({5, 3});
    fill_uniform(x, -1, 1, batch, 10);
    fill_uniform(y, -1, 1, batch, 11);
    x = convert(x, weight.compute_dtype());
    if (tied) x = linear(tanh(linear(x, mix)), mix);
    x = linear(tanh(linear(tanh(linear(x, weight, bias)), wide)), out);
    return mean_squared_error(convert(x, DType::f32), y);
  }
};

inline uint64_t batch_of(int step, int replica, int micro) {
  return static_cast<uint64_t>(1000 * step + 10 * replica + micro);
}

inline std::vector<float> values_of(const Tensor& tensor) {
  return {tensor.data<float>(), tensor.data<float>() + tensor.size()};
}

}  // namespace lockstep
