// SPDX-License-Identifier: Apache-2.0
#include "nn/language_model.h"

#include <algorithm>
#include <cstddef>

#include "kernels/elementary.h"
#include "tensor/autograd.h"
#include "tensor/create.h"

namespace lockstep {
namespace {

/// Returns -log softmax(logits)[target].
double loss_of(std::span<const double> logits, size_t target) {
  const double largest = std::ranges::max(logits);
  double sum = 0.0;
  for (const double logit : logits) sum += math::exp(logit - largest);
  return math::log(sum) - (logits[target] - largest);
}

}  // namespace

Tensor LanguageModel::token_losses(const Tensor& ids, const Tensor& targets, int64_t /*rows_at_once*/) const {
  const NoGrad no_grad;
  const Tensor logits = (*this)(ids, {});
  const std::vector<double> values = to_doubles(logits), wanted = to_doubles(targets);
  const auto rows = static_cast<size_t>(logits.shape()[-1]), used = static_cast<size_t>(vocabulary());
  std::vector<float> losses(wanted.size(), 0.0f);
  for (size_t i = 0; i < losses.size(); ++i) {
    if (wanted[i] < 0) continue;
    const auto of_token = std::span(values).subspan(i * rows, used);
    losses[i] = static_cast<float>(loss_of(of_token, static_cast<size_t>(wanted[i])));
  }
  return from_values(losses, targets.shape());
}

}  // namespace lockstep
