// SPDX-License-Identifier: Apache-2.0
// Masks of dropout and of attention's dropout depend only on the logical position of an element.
#include <cmath>
#include <functional>
#include <vector>

#include "lockstep/tensor/ops.h"
#include "support/gradient_check.h"

namespace lockstep::dropout_test {
namespace {

constexpr RandomKey key{.seed = 5, .step = 7, .sample = 11, .site = 2};
constexpr double probability = 0.4;

struct Dropping {
  const char* name;
  std::function<Tensor(const Tensor& x, const RandomKey& key)> function;
};

/// Applies each kind of dropout to x [samples, 9, 18].
class DropoutTest : public testing::TestWithParam<Dropping> {
 protected:
  static Tensor apply(const Tensor& x, const RandomKey& with) { return GetParam().function(x, with); }
};

INSTANTIATE_TEST_SUITE_P(Kinds, DropoutTest,
                         testing::Values(Dropping{"dropout",
                                                  [](const Tensor& x, const RandomKey& with) {
                                                    return dropout(x, probability, with);
                                                  }},
                                         Dropping{"attention",
                                                  [](const Tensor& x, const RandomKey& with) {
                                                    return causal_attention(x, 2, probability, with);
                                                  }}),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(DropoutTest, TheSameKeyDrawsTheSameMask) {
  const Tensor x = uniform_tensor({5, 9, 18}, 1);
  EXPECT_TRUE(has_same_bits(apply(x, key), apply(x, key)));
}

TEST_P(DropoutTest, EveryPartOfTheKeyCounts) {
  const Tensor x = uniform_tensor({5, 9, 18}, 1);
  const Tensor y = apply(x, key);
  std::vector<RandomKey> others(5, key);
  others[0].seed += 1;
  others[1].seed += uint64_t{1} << 32;
  others[2].step += 1;
  others[3].sample += 1;
  others[4].site += 1;
  for (size_t i = 0; i < others.size(); ++i) EXPECT_FALSE(has_same_bits(y, apply(x, others[i]))) << i;
}

TEST_P(DropoutTest, ASampleDoesNotSeeItsBatch) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = uniform_tensor({5, 9, 18}, 1, dtype);
    const Tensor y = apply(x, key);
    for (uint32_t i = 0; i < 5; ++i) {
      RandomKey of_sample = key;
      of_sample.sample += i;
      EXPECT_TRUE(has_same_bits(apply(x.slice(i, i + 1), of_sample), y.slice(i, i + 1))) << i;
    }
  }
}

TEST_P(DropoutTest, SamplesOfABatchHaveMasksOfTheirOwn) {
  const Tensor one = uniform_tensor({1, 9, 18}, 1);
  const Tensor x = empty({2, 9, 18}, DType::f64);
  copy(one, x.slice(0, 1));
  copy(one, x.slice(1, 2));
  const Tensor y = apply(x, key);
  EXPECT_FALSE(has_same_bits(y.slice(0, 1), y.slice(1, 2)));
}

TEST(Dropout, KeptElementsAreScaledAndTheGradientHasTheSameMask) {
  Tensor x = uniform_tensor({5, 9, 18}, 1);
  x.set_requires_grad();
  const Tensor y = dropout(x, probability, key);
  backward(sum(y));
  int64_t kept = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    const double slope = x.grad().data<double>()[i];
    ASSERT_TRUE(slope == 0.0 || std::fabs(slope - 1 / (1 - probability)) < 1e-15) << slope;
    ASSERT_DOUBLE_EQ(y.data<double>()[i], x.data<double>()[i] * slope);
    kept += slope != 0.0;
  }
  const double sigma = std::sqrt(static_cast<double>(x.size()) * probability * (1 - probability));
  EXPECT_NEAR(static_cast<double>(kept), static_cast<double>(x.size()) * (1 - probability), 4 * sigma);
}

TEST(Dropout, ZeroProbabilityIsTheIdentityAndOneAnError) {
  const Tensor x = uniform_tensor({2, 3}, 1);
  EXPECT_EQ(dropout(x, 0.0, key).id(), x.id());
  EXPECT_THROW(dropout(x, 1.0, key), Error);
  EXPECT_THROW(dropout(x, -0.1, key), Error);
  EXPECT_THROW(causal_attention(uniform_tensor({1, 2, 6}, 1), 1, 1.0, key), Error);
}

}  // namespace
}  // namespace lockstep::dropout_test
