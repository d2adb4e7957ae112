// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/sgd.h"

#include "kernels/expectations.h"

namespace lockstep::testing {
namespace {

/// Compares three steps with the same recursion in double.
void check_steps(DType dtype, int64_t size, bool with_velocity) {
  Values parameter = Values::uniform({size}, dtype, 1);
  Values velocity({size}, dtype);
  std::vector<double> expected, speed(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) expected.push_back(parameter[i]);
  for (uint64_t step = 0; step < 3; ++step) {
    Values gradient = Values::uniform({size}, dtype, 2 + step);
    launch_on(3, SgdStep{.parameter = parameter.view(),
                         .gradient = gradient.view(),
                         .learning_rate = 0.1,
                         .weight_decay = 0.01,
                         .momentum = with_velocity ? 0.9 : 0.0,
                         .velocity = with_velocity ? velocity.view() : View{}});
    for (int64_t i = 0; i < size; ++i) {
      const auto at = static_cast<size_t>(i);
      speed[at] = (with_velocity ? 0.9 * speed[at] : 0.0) + gradient[i] + 0.01 * expected[at];
      expected[at] -= 0.1 * speed[at];
    }
  }
  // Each step has four roundings of numbers below 6, which reach the parameter times 0.1. The parameter
  // itself is rounded once.
  expect_close(
      parameter, [&](int64_t i) { return expected[static_cast<size_t>(i)]; }, 0.0, 3 * 4 * epsilon_of(dtype));
}

TEST(Sgd, StepsMatchReference) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t size : {1, 7, 65, 40000})
      for (const bool with_velocity : {false, true}) check_steps(dtype, size, with_velocity);
}

TEST(Sgd, ThreadsDoNotShowInTheBits) {
  Values gradient = Values::uniform({50001}, DType::f32, 1);
  Values one = Values::uniform({50001}, DType::f32, 2), three = one, speed({50001}), speed_of_three({50001});
  launch_on(1, SgdStep{one.view(), gradient.view(), 0.1, 0.01, 0.9, speed.view()});
  launch_on(3, SgdStep{three.view(), gradient.view(), 0.1, 0.01, 0.9, speed_of_three.view()});
  EXPECT_TRUE(one == three);
  EXPECT_TRUE(speed == speed_of_three);
}

TEST(Sgd, MomentumNeedsAVelocity) {
  Values parameter({3}), gradient({3});
  EXPECT_THROW(launch_on(1, SgdStep{.parameter = parameter.view(),
                                    .gradient = gradient.view(),
                                    .momentum = 0.9,
                                    .velocity = {}}),
               Error);
}

TEST(Sgd, ClipMultipliesTheGradient) {
  Values gradient = Values::uniform({101}, DType::f32, 1), quarter({101}), clip({});
  for (int64_t i = 0; i < gradient.size(); ++i) quarter.set(i, gradient[i] / 4);
  clip.set(0, 0.25);
  Values expected = Values::uniform({101}, DType::f32, 2), actual = expected, speed({101}),
         other_speed({101});
  launch_on(1, SgdStep{expected.view(), quarter.view(), 0.1, 0.01, 0.9, speed.view()});
  launch_on(1,
            SgdStep{actual.view(), gradient.view(), 0.1, 0.01, 0.9, other_speed.view(), 1.0f, clip.view()});
  EXPECT_TRUE(actual == expected);
  EXPECT_TRUE(other_speed == speed);
  launch_on(1, SgdStep{expected.view(), quarter.view(), 0.1, 0.01, 0.9, speed.view()});
  launch_on(1, SgdStep{actual.view(), gradient.view(), 0.1, 0.01, 0.9, other_speed.view(), 0.25f});
  EXPECT_TRUE(actual == expected) << "the same factor from the host";
}

TEST(Sgd, NothingChangesIfTheClipFactorIsNotFinite) {
  Values gradient = Values::uniform({101}, DType::f32, 1), clip({}), speed({101}), zero({101});
  Values parameter = Values::uniform({101}, DType::f32, 2);
  const Values before = parameter;
  clip.set(0, std::nan(""));
  launch_on(1, SgdStep{parameter.view(), gradient.view(), 0.1, 0.01, 0.9, speed.view(), 1.0f, clip.view()});
  EXPECT_TRUE(parameter == before);
  EXPECT_TRUE(speed == zero);
}

}  // namespace
}  // namespace lockstep::testing
