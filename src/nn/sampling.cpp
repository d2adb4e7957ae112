// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/kernels/elementary.h"
#include "lockstep/kernels/random.h"
#include "lockstep/nn/generate.h"

namespace lockstep {
namespace {

constexpr double nothing = -std::numeric_limits<double>::infinity();

/// Ids from the likeliest down, sorted only as far as they are read: a small part of a large vocabulary.
class Ranking {
 public:
  explicit Ranking(std::span<const double> logits) : logits_(logits), ids_(logits.size()) {
    std::iota(ids_.begin(), ids_.end(), 0);
  }

  int32_t operator[](size_t rank) {
    while (rank >= sorted_) sort_more();
    return ids_[rank];
  }

 private:
  void sort_more() {
    const size_t end = std::min(ids_.size(), std::max<size_t>(64, 4 * sorted_));
    const auto likelier = [this](int32_t a, int32_t b) {
      const double x = logits_[static_cast<size_t>(a)], y = logits_[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    };
    const auto at = [this](size_t rank) { return ids_.begin() + static_cast<std::ptrdiff_t>(rank); };
    if (end < ids_.size()) std::nth_element(at(sorted_), at(end), ids_.end(), likelier);
    std::sort(at(sorted_), at(end), likelier);
    sorted_ = end;
  }

  std::span<const double> logits_;
  std::vector<int32_t> ids_;
  size_t sorted_ = 0;
};

/// Returns the logits after the repetition penalty. NaN becomes minus infinity.
std::vector<double> penalized(std::span<const double> logits, std::span<const int32_t> text, double penalty) {
  std::vector<double> values(logits.begin(), logits.end());
  for (double& value : values)
    if (std::isnan(value)) value = nothing;
  if (penalty == 1.0) return values;
  std::vector<int32_t> seen(text.begin(), text.end());
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  for (const int32_t id : seen) {
    if (static_cast<size_t>(id) >= values.size()) continue;
    double& value = values[static_cast<size_t>(id)];
    value = value < 0 ? value * penalty : value / penalty;
  }
  return values;
}

/// Returns the first id of the largest value. A NaN is never the largest.
int32_t likeliest(std::span<const double> values) {
  size_t best = 0;
  for (size_t id = 1; id < values.size(); ++id)
    if (values[id] > values[best] || std::isnan(values[best])) best = id;
  return std::isnan(values[best]) ? 0 : static_cast<int32_t>(best);
}

}  // namespace

void require_valid(const GenerateOptions& options, const std::string& where) {
  const auto is_finite_from = [](double value, double least) {
    return std::isfinite(value) && value >= least;
  };
  require(options.tokens >= 0, where, "max_new_tokens is ", options.tokens, ": it must be 0 or more");
  require(is_finite_from(options.temperature, 0.0), where, "temperature is ", options.temperature,
          ": it must be 0 or more");
  require(options.top_k >= 0, where, "top_k is ", options.top_k, ": it must be 0 (all) or more");
  require(options.top_p > 0.0 && options.top_p <= 1.0, where, "top_p is ", options.top_p,
          ": it must be above 0, and at most 1 (all)");
  require(is_finite_from(options.repetition_penalty, 0.0) && options.repetition_penalty > 0.0, where,
          "repetition_penalty is ", options.repetition_penalty, ": it must be above 0 (1: no penalty)");
}

int32_t next_token(std::span<const double> logits, std::span<const int32_t> text,
                   const GenerateOptions& options, uint32_t position) {
  expect(!logits.empty(), "there are no logits to draw from");
  // Rows of the table beyond the tokenizer's symbols stand for no token.
  if (options.symbols > 0)
    logits = logits.first(std::min(logits.size(), static_cast<size_t>(options.symbols)));
  if (options.temperature == 0.0 && options.repetition_penalty == 1.0) return likeliest(logits);
  const std::vector<double> values = penalized(logits, text, options.repetition_penalty);
  const int32_t first = likeliest(values);
  const double largest = values[static_cast<size_t>(first)];
  if (options.temperature == 0.0 || std::isinf(largest)) return first;
  const auto weight = [&](int32_t id) {
    return math::exp((values[static_cast<size_t>(id)] - largest) / options.temperature);
  };
  Ranking ranking(values);
  size_t count = values.size();
  if (options.top_k > 0) count = std::min(count, static_cast<size_t>(options.top_k));
  double total = 0.0;
  if (count == values.size())
    for (size_t id = 0; id < count; ++id) total += weight(static_cast<int32_t>(id));
  else
    for (size_t rank = 0; rank < count; ++rank) total += weight(ranking[rank]);
  if (options.top_p < 1.0) {
    double kept = 0.0;
    size_t rank = 0;
    while (rank < count && kept < options.top_p * total) kept += weight(ranking[rank++]);
    count = rank;
    total = kept;
  }
  const auto words = philox(derive_key(options.seed, 0, sampling_lane), {position, options.prompt, 0, 0});
  const double target = total * static_cast<double>(uniform_float(words[0]));
  double sum = weight(ranking[0]);
  size_t rank = 0;
  while (sum <= target && rank + 1 < count) sum += weight(ranking[++rank]);
  return ranking[rank];
}

}  // namespace lockstep
