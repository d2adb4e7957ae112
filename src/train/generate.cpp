// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/random.h"
#include "tensor/autograd.h"
#include "tensor/create.h"
#include "train/language_model.h"

namespace lockstep {
namespace {

/// The logits that follow the last of `ids`, of which as many count as the model can see. The cache holds
/// what the call before has read, until the text is longer than that: from then on every token moves to
/// another position at every call, so all are read anew.
std::vector<double> next_logits(const Gpt& model, const std::vector<int32_t>& ids, KeyValueCache& cache) {
  const int64_t end = static_cast<int64_t>(ids.size()), begin = std::max<int64_t>(0, end - cache.capacity);
  if (begin > 0) cache.tokens = 0;
  const std::vector<int32_t> unread(ids.begin() + begin + cache.tokens, ids.end());
  return to_doubles(model.next_logits(from_values(unread, {1, end - begin - cache.tokens}), cache));
}

int32_t draw(const std::vector<double>& logits, int64_t symbols, const GenerateOptions& options,
             uint32_t position) {
  // Rows of the table beyond the tokenizer's symbols stand for nothing.
  std::vector<int32_t> order(static_cast<size_t>(symbols));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
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

/// What a text begins with if nobody says: the end of a line before it.
std::vector<int32_t> first_id(const CharTokenizer& tokenizer) {
  const bool has_lines = tokenizer.vocabulary().find('\n') != std::string::npos;
  return has_lines ? tokenizer.encode("\n") : std::vector<int32_t>{0};
}

}  // namespace

std::string generate(const Gpt& model, const CharTokenizer& tokenizer, const GenerateOptions& options) {
  require(options.temperature >= 0.0 && std::isfinite(options.temperature), "--temperature ",
          options.temperature, ": it must be 0 or more");
  require(options.top_k >= 0, "--top-k ", options.top_k, ": it must be 0 (all) or more");
  require(options.tokens >= 0, "--tokens ", options.tokens, ": it must be 0 or more");
  const int64_t symbols = std::min(tokenizer.vocabulary_size(), model.options().vocabulary);
  std::vector<int32_t> ids =
      options.prompt.empty() ? first_id(tokenizer) : tokenizer.encode(options.prompt, "--prompt");
  KeyValueCache cache{.capacity = model.options().block_size};
  for (int64_t token = 0; token < options.tokens && options.go_on(); ++token)
    ids.push_back(draw(next_logits(model, ids, cache), symbols, options, static_cast<uint32_t>(token)));
  return tokenizer.decode(ids);
}

}  // namespace lockstep
