// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tensor/create.h"
#include "tensor/ops.h"

namespace lockstep {

inline constexpr double learning_rate = 0.05;
inline constexpr double max_norm = 0.3;  // clips some steps
inline constexpr int steps = 3;

inline Tensor parameter(const Shape& shape) { return zeros(shape).set_requires_grad(); }

/// A few parameters of odd sizes, one of several blocks. With `tied`, one more is used twice and listed under
/// two names.
struct TinyModel {
  bool tied;
  Tensor mix = parameter({7, 7});
  Tensor weight = parameter({33, 7});
  Tensor bias = parameter({33});
  Tensor wide = parameter({401, 33});
  Tensor out = parameter({3, 401});

  explicit TinyModel(uint64_t seed = 0, bool has_tied = true) : tied(has_tied) {
    uint32_t site = 0;
    for (const Tensor& tensor : {mix, weight, bias, wide, out}) fill_uniform(tensor, -0.7, 0.7, seed, site++);
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
    if (tied) x = linear(tanh(linear(x, mix)), mix);
    return mean_squared_error(linear(tanh(linear(tanh(linear(x, weight, bias)), wide)), out), y);
  }
};

inline uint64_t batch_of(int step, int replica, int micro) {
  return static_cast<uint64_t>(1000 * step + 10 * replica + micro);
}

inline std::vector<float> values_of(const Tensor& tensor) {
  return {tensor.data<float>(), tensor.data<float>() + tensor.size()};
}

}  // namespace lockstep
