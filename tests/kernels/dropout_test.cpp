// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/dropout.h"

#include "kernels/expectations.h"

namespace lockstep::testing {
namespace {

constexpr RandomKey key{.seed = 0x123456789abcdef, .step = 17, .sample = 40, .site = 3};

/// Implements dropout's contract, element by element.
bool is_kept(int64_t sample, int64_t element, double probability) {
  const auto group = static_cast<uint64_t>(element) / 8;
  const auto words = philox<7>(derive_key(key.seed, key.site, 0),
                               {static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32),
                                key.sample + static_cast<uint32_t>(sample), key.step});
  const uint32_t pair = words[static_cast<size_t>(element % 8 / 2)];
  const uint32_t word = element % 2 ? pair >> 16 : pair & 0xffffu;
  return word >= std::round(65536.0 * probability);
}

TEST(Dropout, MaskAndScaleAreTheContracts) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const Shape& shape : {Shape{5, 1}, Shape{5, 7}, Shape{3, 65, 31}, Shape{2, 64, 384}}) {
      Values x = Values::uniform(shape, dtype, 1, 1.0, 2.0);
      Values y(shape, dtype);
      launch_on(1, Dropout{.x = x.view(), .y = y.view(), .probability = 0.3, .key = key});
      const int64_t elements = x.size() / shape[0];
      expect_close(
          y, [&](int64_t i) { return is_kept(i / elements, i % elements, 0.3) ? x[i] / 0.7 : 0.0; },
          2 * epsilon_of(dtype), 0.0);
      launch_on(3, Dropout{.x = x.view(), .y = x.view(), .probability = 0.3, .key = key});
      EXPECT_TRUE(x == y);
    }
}

TEST(Dropout, KeepRateIsWithinFourSigma) {
  constexpr int64_t size = 1 << 20;
  for (const double probability : {0.1, 0.5, 0.9}) {
    Values x({4, size / 4});
    for (int64_t i = 0; i < size; ++i) x.set(i, 1.0);
    launch_on(1, Dropout{.x = x.view(), .y = x.view(), .probability = probability, .key = key});
    int64_t kept = 0;
    for (int64_t i = 0; i < size; ++i) kept += x[i] != 0.0;
    const double sigma = std::sqrt(size * probability * (1.0 - probability));
    EXPECT_NEAR(static_cast<double>(kept), size * (1.0 - probability), 4.0 * sigma + size * 0x1p-17);
  }
}

TEST(Dropout, CuttingABatchDoesNotShow) {
  Values x = Values::uniform({6, 4, 33}, DType::f32, 2);
  Values whole(x.shape());
  launch_on(1, Dropout{.x = x.view(), .y = whole.view(), .probability = 0.5, .key = key});
  RandomKey later = key;
  later.sample += 2;
  View rest = x.view();
  rest.data = static_cast<float*>(rest.data) + 2 * 4 * 33;
  rest.shape = {4, 4, 33};
  launch_on(1, Dropout{.x = rest, .y = rest, .probability = 0.5, .key = later});
  for (int64_t i = 2 * 4 * 33; i < x.size(); ++i) ASSERT_EQ(x[i], whole[i]);
}

TEST(Dropout, ZeroProbabilityKeepsEverything) {
  Values x = Values::uniform({2, 9}, DType::f32, 2);
  Values y(x.shape());
  launch_on(1, Dropout{.x = x.view(), .y = y.view(), .probability = 0.0, .key = key});
  EXPECT_TRUE(x == y);
  EXPECT_THROW(launch_on(1, Dropout{.x = x.view(), .y = y.view(), .probability = 1.0, .key = key}), Error);
}

}  // namespace
}  // namespace lockstep::testing
