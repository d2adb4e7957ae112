// SPDX-License-Identifier: Apache-2.0
#include "nn/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/random.h"
#include "tensor/create.h"

namespace lockstep {
namespace {

/// The logits that follow the last of these ids.
using NextLogits = std::function<std::vector<double>(const std::vector<int32_t>& ids)>;

int32_t draw(const std::vector<double>& logits, const GenerateOptions& options, uint32_t position) {
  // Rows of the table beyond the tokenizer's symbols stand for nothing.
  const int64_t known = static_cast<int64_t>(logits.size());
  const int64_t symbols = options.symbols > 0 ? std::min(options.symbols, known) : known;
  std::vector<int32_t> order(static_cast<size_t>(symbols));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater{},
                           [&](int32_t id) { return logits[static_cast<size_t>(id)]; });
  if (options.temperature == 0.0) return order[0];
  if (options.top_k > 0 && options.top_k < symbols) order.resize(static_cast<size_t>(options.top_k));
  std::vector<double> cumulative;
  double total = 0.0;
  const double highest = logits[static_cast<size_t>(order[0])];
  for (int32_t id : order) {
    total += std::exp((logits[static_cast<size_t>(id)] - highest) / options.temperature);
    cumulative.push_back(total);
  }
  const auto words = philox(derive_key(options.seed, 0, sampling_lane), {position, 0, 0, 0});
  const double target = total * static_cast<double>(uniform_float(words[0]));
  const auto found = std::upper_bound(cumulative.begin(), cumulative.end(), target);
  return order[static_cast<size_t>(
      std::min<int64_t>(found - cumulative.begin(), static_cast<int64_t>(order.size()) - 1))];
}

std::vector<int32_t> continued(const NextLogits& next, std::vector<int32_t> ids,
                               const GenerateOptions& options) {
  require(options.temperature >= 0.0 && std::isfinite(options.temperature), "temperature ",
          options.temperature, ": it must be 0 or more");
  require(options.top_k >= 0, "top-k ", options.top_k, ": it must be 0 (all) or more");
  require(options.tokens >= 0, "tokens ", options.tokens, ": it must be 0 or more");
  expect(!ids.empty(), "generate: there is no token to go on from");
  for (int64_t token = 0; token < options.tokens && options.go_on(); ++token)
    ids.push_back(draw(next(ids), options, static_cast<uint32_t>(token)));
  return ids;
}

}  // namespace

std::vector<int32_t> generate(const LanguageModel& model, int64_t context, std::vector<int32_t> ids,
                              const GenerateOptions& options) {
  const NoGrad no_grad;
  const NextLogits next = [&](const std::vector<int32_t>& text) {
    const int64_t time = std::min(context, static_cast<int64_t>(text.size()));
    const Tensor logits = model(from_values(std::vector<int32_t>(text.end() - time, text.end()), {1, time}));
    const int64_t rows = logits.shape().rows();
    return to_doubles(logits.reshape({rows, -1}).slice(rows - 1, rows));
  };
  return continued(next, std::move(ids), options);
}

std::vector<int32_t> generate(const Gpt& model, std::vector<int32_t> ids, const GenerateOptions& options) {
  KeyValueCache cache{.capacity = model.options().block_size};
  // The cache holds what the call before has read, until the text is longer than that: from then on every
  // token moves to another position at every call, so all are read anew.
  const NextLogits next = [&](const std::vector<int32_t>& text) {
    const int64_t end = static_cast<int64_t>(text.size());
    const int64_t begin = std::max<int64_t>(0, end - cache.capacity);
    if (begin > 0) cache.tokens = 0;
    const std::vector<int32_t> unread(text.begin() + begin + cache.tokens, text.end());
    return to_doubles(model.next_logits(from_values(unread, {1, end - begin - cache.tokens}), cache));
  };
  return continued(next, std::move(ids), options);
}

}  // namespace lockstep
