// SPDX-License-Identifier: Apache-2.0
// Runs a language model on a stream, so that tests can compare a GPU with the CPU.
#pragma once

#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "lockstep/nn/language_model.h"
#include "lockstep/parameters/parameter_space.h"
#include "lockstep/tensor/create.h"
#include "support/cuda.h"
#include "support/gradient_check.h"

namespace lockstep::model_on_gpu {

/// The sizes of the inputs. A model needs a block size of at least 48.
inline constexpr int64_t vocabulary = 65, time = 40, batch = 2;

using Values = std::vector<double>;

struct LossOptions {
  DType precision = DType::f32;
  int64_t rows_at_once = 0;
  double scale = 1.0;  ///< the gradients are those of this times the loss
};

/// Returns the loss and every gradient by name. `make` returns the model.
template <class Make>
std::map<std::string, Values> gradients_on(const Stream& stream, const Make& make,
                                           const LossOptions& options) {
  set_current_stream(stream);
  std::map<std::string, Values> results;
  {
    const auto model = make();
    ParameterSpace space(model.parameters());
    space.set_precision(options.precision);
    const Tensor ids = from_values(random_id_values(batch * time, vocabulary, 1), {batch, time});
    const Tensor targets = from_values(random_id_values(batch * time, vocabulary, 2), {batch, time});
    const Context context{.training = true, .seed = 3, .step = 5, .sample = 8};
    const Tensor loss = model.loss(ids, targets, context, options.rows_at_once);
    results["loss"] = {item(loss)};
    backward(loss, options.scale);
    for (const auto& [name, tensor] : model.parameters()) results[name] = to_doubles(tensor.grad());
  }
  set_current_stream(cpu_stream());
  return results;
}

/// Returns the logits of two texts that are read together, cut in different places.
template <class Make>
Values cached_logits_on(const Stream& stream, const Make& make, DType precision) {
  set_current_stream(stream);
  Values logits;
  {
    const auto model = make();
    ParameterSpace space(model.parameters());
    space.set_precision(precision);
    KeyValueCache cache{.texts = 2, .capacity = 48};
    const std::vector<int32_t> ids = random_id_values(time, vocabulary, 1);
    const auto part = [&](int64_t text, int64_t begin, int64_t end) {
      return NextTokens{.text = text, .past = begin, .ids = {ids.begin() + begin, ids.begin() + end}};
    };
    for (const auto& parts :
         {std::vector{part(0, 0, 5), part(1, 0, 30)}, {part(0, 5, 6), part(1, 30, 31)}, {part(0, 6, 40)}})
      for (const double logit : to_doubles(model.next_logits(parts, cache))) logits.push_back(logit);
  }
  set_current_stream(cpu_stream());
  return logits;
}

inline void expect_near(const std::map<std::string, Values>& actual,
                        const std::map<std::string, Values>& expected, double loss_bound,
                        double gradient_bound) {
  EXPECT_NEAR(actual.at("loss")[0], expected.at("loss")[0], loss_bound);
  for (const auto& [name, values] : expected)
    if (name != "loss") {
      EXPECT_LE(relative_error(actual.at(name), values), gradient_bound) << name;
    }
}

}  // namespace lockstep::model_on_gpu
