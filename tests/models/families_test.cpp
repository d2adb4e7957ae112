// SPDX-License-Identifier: Apache-2.0
// What the engine asks of every family.
#include <gtest/gtest.h>

#include "lockstep/models/family.h"
#include "lockstep/tensor/autograd.h"
#include "lockstep/tensor/create.h"

namespace lockstep {
namespace {

TEST(Families, DivideTheLossByTheCountOfTheContext) {
  const std::vector<int32_t> ids{1, 2, 3, 4, 5, 6, 7, 8}, targets{-1, 3, 4, -1, 6, 7, 8, -1};
  const NoGrad no_grad;
  for (const Family* family : families()) {
    ModelOptions options;
    options.family = family->name();
    options.n_layer = 1;
    options.n_head = 2;
    options.n_embd = 8;
    options.vocab_size = 9;
    options.n_positions = 4;
    const auto model = family->make(options, {}, 1);
    for (const int64_t rows_at_once : {0, 3}) {
      const auto loss = [&](const Context& context) {
        return item(
            model->loss(from_values(ids, {2, 4}), from_values(targets, {2, 4}), context, rows_at_once));
      };
      const double mean = loss({});
      EXPECT_GT(mean, 1.0) << family->title();
      // Each sum of five numbers near 2 has an error of 2^-21.
      EXPECT_NEAR(loss({.inverse_count = full({}, 0.5)}), mean * 5 / 2, 4e-6) << family->title();
      EXPECT_EQ(loss({.inverse_count = full({}, 1.0 / 5)}), mean) << family->title();
    }
  }
}

}  // namespace
}  // namespace lockstep
