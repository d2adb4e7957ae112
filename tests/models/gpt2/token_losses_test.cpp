// SPDX-License-Identifier: Apache-2.0
// Checks the losses of single tokens against the logits, and on what they may depend.
#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "lockstep/models/gpt2/gpt.h"
#include "lockstep/parameters/parameter_space.h"
#include "lockstep/tensor/create.h"
#include "support/gradient_check.h"

namespace lockstep::token_losses_test {
namespace {

constexpr int64_t vocabulary = 31, time = 12, batch = 3;

Gpt::Options padded_options(bool is_tied) {
  return {.vocabulary = vocabulary,
          .rows = 64,
          .block_size = time,
          .layers = 2,
          .heads = 3,
          .width = 24,
          .dropout = 0.5,
          .tie_weights = is_tied};
}

/// Returns targets of which every fourth does not count.
Tensor some_targets() {
  std::vector<int32_t> values = random_id_values(batch * time, vocabulary, 2);
  for (size_t i = 0; i < values.size(); i += 4) values[i] = -1;
  return from_values(values, {batch, time});
}

/// Returns -log softmax(logits)[target] of each target, in double; 0 where it is -1.
std::vector<double> losses_of(const Tensor& logits, const Tensor& targets) {
  const std::vector<double> values = to_doubles(logits), wanted = to_doubles(targets);
  const auto rows = static_cast<size_t>(logits.shape()[-1]);
  std::vector<double> losses(wanted.size(), 0.0);
  for (size_t i = 0; i < losses.size(); ++i) {
    if (wanted[i] < 0) continue;
    double sum = 0.0;
    for (size_t id = 0; id < vocabulary; ++id) sum += std::exp(values[i * rows + id]);
    losses[i] = std::log(sum) - values[i * rows + static_cast<size_t>(wanted[i])];
  }
  return losses;
}

// A loss is up to 8, and the kernel adds 64 exponentials in fp32.
TEST(TokenLosses, AreThoseOfTheLogits) {
  const Tensor ids = random_ids({batch, time}, vocabulary, 1), targets = some_targets();
  for (const bool is_tied : {true, false}) {
    const Gpt model(padded_options(is_tied), 1);
    const std::vector<double> losses = to_doubles(model.token_losses(ids, targets, 5));
    const std::vector<double> expected = losses_of(model(ids, {}), targets);
    const std::vector<double> wanted = to_doubles(targets);
    ASSERT_EQ(losses.size(), expected.size());
    double sum = 0.0, count = 0.0;
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], expected[i], 2e-6) << i;
      EXPECT_EQ(losses[i] == 0.0, wanted[i] < 0) << i;
      sum += losses[i];
      count += wanted[i] < 0 ? 0.0 : 1.0;
    }
    EXPECT_NEAR(sum / count, item(model.loss(ids, targets, {})), 2e-6);
  }
}

TEST(TokenLosses, DependOnTheTokensBeforeThemAlone) {
  for (const DType precision : {DType::f32, DType::bf16}) {
    const Gpt model(padded_options(true), 1);
    ParameterSpace space(model.parameters());
    space.set_precision(precision);
    const Tensor ids = random_ids({batch, time}, vocabulary, 1), targets = some_targets();
    const Tensor losses = model.token_losses(ids, targets);
    EXPECT_EQ(losses.dtype(), DType::f32);
    for (const int64_t rows_at_once : {1, 5, 100})
      EXPECT_TRUE(has_same_bits(model.token_losses(ids, targets, rows_at_once), losses)) << rows_at_once;
    for (int64_t sample = 0; sample < batch; ++sample)
      for (const int64_t part : {1, 7, 12}) {
        const auto of_part = [&](const Tensor& all) {
          return all.slice(sample, sample + 1).reshape({time}).slice(0, part).reshape({1, part});
        };
        EXPECT_TRUE(has_same_bits(model.token_losses(of_part(ids), of_part(targets)), of_part(losses)))
            << precision << " " << sample << " " << part;
      }
  }
}

}  // namespace
}  // namespace lockstep::token_losses_test
