// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/cross_entropy.h"

#include "kernels/expectations.h"

namespace lockstep::testing {
namespace {

Values random_targets(int64_t rows, int64_t classes, int32_t ignored) {
  Values targets({rows}, DType::i32);
  for (int64_t i = 0; i < rows; ++i)
    targets.set(i, i % 5 == 2 ? ignored : static_cast<double>((i * 7919) % classes));
  return targets;
}

double reference_loss(const Values& logits, int64_t row, int64_t target) {
  const int64_t classes = logits.shape()[-1];
  double sum = 0.0;
  for (int64_t j = 0; j < classes; ++j) sum += std::exp(logits[row * classes + j]);
  return std::log(sum) - logits[row * classes + target];
}

TEST(CrossEntropy, LossMatchesReference) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t classes : {1, 7, 65, 384}) {
      Values logits = Values::uniform({12, classes}, dtype, 1, -10.0, 10.0);
      Values targets = random_targets(12, classes, -100);
      Values losses({12}, dtype);
      launch_on(1, CrossEntropy{.logits = logits.view(),
                                .targets = targets.view(),
                                .losses = losses.view(),
                                .dlogits = {},
                                .ignore_index = -100});
      // Differences of logits are up to 20 and are rounded before the exponential. The sum has about 20
      // roundings.
      expect_close(
          losses,
          [&](int64_t i) {
            return targets[i] == -100 ? 0.0 : reference_loss(logits, i, static_cast<int64_t>(targets[i]));
          },
          0.0, 40 * epsilon_of(dtype));
    }
}

TEST(CrossEntropy, GradientMatchesCentralDifferences) {
  for (const int64_t classes : {1, 7, 65}) {
    Values logits = Values::uniform({6, classes}, DType::f64, 2);
    Values targets = random_targets(6, classes, -1);
    Values losses({6}, DType::f64), dlogits(logits.shape(), DType::f64);
    const auto loss = [&] {
      launch_on(1, CrossEntropy{.logits = logits.view(),
                                .targets = targets.view(),
                                .losses = losses.view(),
                                .dlogits = dlogits.view(),
                                .gradient_scale = 0.25});
      double sum = 0.0;
      for (int64_t i = 0; i < 6; ++i) sum += 0.25 * losses[i];
      return sum;
    };
    loss();
    const Values gradient = dlogits;
    expect_slopes(logits, gradient, loss);
  }
}

TEST(CrossEntropy, GradientInFloatMatchesDouble) {
  Values logits = Values::uniform({9, 65}, DType::f32, 3, -10.0, 10.0);
  Values exact_logits(logits.shape(), DType::f64);
  for (int64_t i = 0; i < logits.size(); ++i) exact_logits.set(i, logits[i]);
  Values targets = random_targets(9, 65, -1);
  Values losses({9}), exact_losses({9}, DType::f64), dlogits(logits.shape()),
      exact(logits.shape(), DType::f64);
  launch_on(1, CrossEntropy{logits.view(), targets.view(), losses.view(), dlogits.view()});
  launch_on(1, CrossEntropy{exact_logits.view(), targets.view(), exact_losses.view(), exact.view()});
  expect_close(
      dlogits, [&](int64_t i) { return exact[i]; }, 0.0, 40 * 0x1p-23);
}

TEST(CrossEntropy, AllRowsIgnoredGiveZeros) {
  Values logits = Values::uniform({4, 5}, DType::f32, 4);
  Values targets = Values::of({-1, -1, -1, -1});
  Values losses = Values::uniform({4}, DType::f32, 5);
  Values dlogits = Values::uniform({4, 5}, DType::f32, 6);
  launch_on(1, CrossEntropy{logits.view(), targets.view(), losses.view(), dlogits.view()});
  expect_close(
      losses, [](int64_t) { return 0.0; }, 0.0, 0.0);
  expect_close(
      dlogits, [](int64_t) { return 0.0; }, 0.0, 0.0);
}

TEST(CrossEntropy, HugeLogitsStayFinite) {
  Values logits({1, 3});
  logits.set(0, 1e30), logits.set(1, -1e30);
  Values targets = Values::of({0});
  Values losses({1});
  launch_on(1, CrossEntropy{logits.view(), targets.view(), losses.view(), logits.view()});
  EXPECT_EQ(losses[0], 0.0);
  expect_close(
      logits, [](int64_t) { return 0.0; }, 0.0, 0.0);
}

TEST(CrossEntropy, NanLogitGivesNanLoss) {
  Values logits({1, 40});
  logits.set(17, NAN);
  Values targets = Values::of({3});
  Values losses({1});
  launch_on(1, CrossEntropy{logits.view(), targets.view(), losses.view(), {}});
  EXPECT_TRUE(std::isnan(losses[0]));
}

TEST(CrossEntropy, ThreadsAliasAndGradientDoNotShowInTheBits) {
  Values logits = Values::uniform({701, 65}, DType::f32, 7);
  Values targets = random_targets(701, 65, -1);
  Values losses({701}), more({701}), alone({701}), dlogits(logits.shape());
  launch_on(1, CrossEntropy{.logits = logits.view(),
                            .targets = targets.view(),
                            .losses = losses.view(),
                            .dlogits = dlogits.view(),
                            .gradient_scale = 0.5});
  launch_on(3, CrossEntropy{logits.view(), targets.view(), alone.view(), {}});
  launch_on(3, CrossEntropy{.logits = logits.view(),
                            .targets = targets.view(),
                            .losses = more.view(),
                            .dlogits = logits.view(),
                            .gradient_scale = 0.5});
  EXPECT_TRUE(losses == more);
  EXPECT_TRUE(losses == alone);
  EXPECT_TRUE(logits == dlogits);
}

TEST(CrossEntropy, ScaleInMemoryIsTheScaleOfTheHost) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    Values logits = Values::uniform({13, 65}, dtype, 8);
    Values targets = random_targets(13, 65, -1);
    Values losses({13}, dtype), expected(logits.shape(), dtype), dlogits(logits.shape(), dtype);
    // Three of the 13 targets are ignored.
    launch_on(1, CrossEntropy{.logits = logits.view(),
                              .targets = targets.view(),
                              .losses = losses.view(),
                              .dlogits = expected.view(),
                              .gradient_scale = 1.0 / 10.0});
    Values inverse({1}, dtype);
    launch_on(1, InverseCount{.targets = targets.view(), .y = inverse.view()});
    Values rounded({1}, dtype);
    rounded.set(0, 1.0 / 10.0);
    EXPECT_TRUE(inverse == rounded);
    CrossEntropy kernel{.logits = logits.view(),
                        .targets = targets.view(),
                        .losses = losses.view(),
                        .dlogits = dlogits.view(),
                        .scale = inverse.view()};
    launch_on(3, kernel);
    EXPECT_TRUE(dlogits == expected);
    kernel.gradient_scale = 2.0;
    launch_on(1, kernel);
    expect_close(
        dlogits, [&](int64_t i) { return 2.0 * expected[i]; }, 0.0, 0.0);
    kernel.scale = losses.view();
    EXPECT_THROW(launch_on(1, kernel), Error);
  }
}

TEST(InverseCount, OfNothingIsZero) {
  Values targets = Values::of({-1, -1}), y({1});
  launch_on(1, InverseCount{.targets = targets.view(), .ignore_index = -1, .y = y.view()});
  EXPECT_EQ(y[0], 0.0);
  launch_on(1, InverseCount{.targets = targets.view(), .ignore_index = 0, .y = y.view()});
  EXPECT_EQ(y[0], 0.5);
}

TEST(CrossEntropy, TargetOutsideNamesPositionAndValue) {
  Values logits({2, 5}), losses({2});
  Values targets = Values::of({1, 5});
  try {
    launch_on(1, CrossEntropy{logits.view(), targets.view(), losses.view(), {}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("target 5 at position 1"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep::testing
