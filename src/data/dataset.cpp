// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/kernels/random.h"

namespace lockstep {
namespace {

void check_index(int64_t index, int64_t size) {
  expect(index >= 0 && index < size, "sample ", index, " of ", size);
}

/// Returns word `position` of the random sequence of one sample.
uint32_t random_word(uint64_t seed, int64_t index, int64_t position) {
  const auto low = [](int64_t value) { return static_cast<uint32_t>(value); };
  return philox(seed,
                {low(position / 4), low(index), low(index >> 32), 0})[static_cast<size_t>(position % 4)];
}

/// Returns a number in [0, end) from random_word().
int64_t drawn_below(int64_t end, uint64_t seed, int64_t index, int64_t position) {
  const uint64_t word = random_word(seed, index, position);
  return static_cast<int64_t>(word * static_cast<uint64_t>(end) >> 32);
}

}  // namespace

TokenWindows::TokenWindows(Tokens tokens, int64_t block_size, uint64_t seed)
    : tokens_(std::move(tokens)), block_size_(block_size), seed_(seed) {
  expect(block_size > 0, "windows of ", block_size, " tokens");
  expect(size() > 0, "no window of ", block_size, " + 1 tokens in ", tokens_.size());
}

int64_t TokenWindows::size() const { return (tokens_.size() - 1) / block_size_; }

void TokenWindows::fetch(int64_t index, void* input, void* target) const {
  check_index(index, size());
  copy_window(index * block_size_, input, target);
}

void TokenWindows::fetch_in_epoch(int64_t epoch, int64_t index, void* input, void* target) const {
  check_index(index, size());
  const int64_t later = drawn_below(block_size_, seed_, index, epoch);
  const int64_t last = tokens_.size() - 1 - block_size_;
  copy_window(std::min(index * block_size_ + later, last), input, target);
}

void TokenWindows::copy_window(int64_t begin, void* input, void* target) const {
  // Tokens may be in a file, so they are read once.
  std::vector<int32_t> window(static_cast<size_t>(block_size_) + 1);
  tokens_.copy(begin, block_size_ + 1, window.data());
  std::copy_n(window.data(), block_size_, static_cast<int32_t*>(input));
  std::copy_n(window.data() + 1, block_size_, static_cast<int32_t*>(target));
}

Split<TokenWindows> split_tokens(const Tokens& tokens, int64_t block_size, double train_split,
                                 uint64_t seed) {
  require(train_split > 0 && train_split <= 1, option_name("train_split"), " = ", train_split,
          ": a number above 0 and at most 1 is needed");
  require(block_size > 0, option_name("block_size"), " = ", block_size, ": at least 1 is needed");
  const auto border = static_cast<int64_t>(std::floor(train_split * static_cast<double>(tokens.size())));
  const auto windows = [&](const char* part, int64_t begin, int64_t end) {
    require(end - begin > block_size, option_name("block_size"), " = ", block_size, " is too long: the ",
            part, " part of the corpus has ", end - begin, " tokens, and ", block_size + 1,
            " are needed; shorten the block, change ", option_name("train_split"),
            " or take a longer corpus");
    return std::make_shared<const TokenWindows>(tokens.slice(begin, end), block_size, seed);
  };
  return {.train = windows("training", 0, border),
          .validation = train_split < 1 ? windows("validation", border, tokens.size()) : nullptr};
}

RandomTokens::RandomTokens(const Options& options) : options_(options) {
  expect(options.samples > 0 && options.block_size > 0, options.samples, " samples of ", options.block_size,
         " tokens");
  expect(options.vocabulary_size > 0 && options.vocabulary_size <= INT32_MAX, "a vocabulary of ",
         options.vocabulary_size);
}

void RandomTokens::fetch(int64_t index, void* input, void* target) const {
  check_index(index, size());
  const auto token = [&](int64_t position) {
    return static_cast<int32_t>(drawn_below(options_.vocabulary_size, options_.seed, index, position));
  };
  for (int64_t i = 0; i < options_.block_size; ++i) {
    static_cast<int32_t*>(input)[i] = token(i);
    static_cast<int32_t*>(target)[i] = token(i + 1);
  }
}

SyntheticRegression::SyntheticRegression(int64_t samples, int64_t features, uint64_t seed)
    : samples_(samples), features_(features) {
  expect(samples > 0 && features > 0, samples, " samples of ", features, " features");
  values_.reserve(static_cast<size_t>(samples * (features + 1)));
  for (int64_t index = 0; index < samples; ++index)
    for (int64_t i = 0; i <= features; ++i) values_.push_back(uniform_float(random_word(seed, index, i)));
}

void SyntheticRegression::fetch(int64_t index, void* input, void* target) const {
  check_index(index, size());
  const float* sample = values_.data() + index * (features_ + 1);
  std::copy_n(sample, features_, static_cast<float*>(input));
  *static_cast<float*>(target) = sample[features_];
}

}  // namespace lockstep
