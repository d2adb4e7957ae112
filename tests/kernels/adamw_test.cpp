// SPDX-License-Identifier: Apache-2.0
#include "kernels/adamw.h"

#include "kernels/values.h"

namespace lockstep::testing {
namespace {

constexpr double rate = 1e-2, beta1 = 0.9, beta2 = 0.99, epsilon = 1e-8;

/// One parameter with its state, and the same in double by the textbook's formula.
struct Parameter {
  Values value, gradient, first, second;
  double weight_decay;
  std::vector<double> p, m, v;

  Parameter(int64_t size, DType dtype, double decay)
      : value(Values::uniform({size}, dtype, 1)),
        gradient({size}, dtype),
        first({size}, dtype),
        second({size}, dtype),
        weight_decay(decay),
        m(static_cast<size_t>(size)),
        v(static_cast<size_t>(size)) {
    for (int64_t i = 0; i < size; ++i) p.push_back(value[i]);
  }

  AdamWSegment segment() {
    return {value.view(), gradient.view(), first.view(), second.view(), weight_decay};
  }

  void reference_step(int64_t step, double scale) {
    for (size_t i = 0; i < p.size(); ++i) {
      const double g = gradient[static_cast<int64_t>(i)] * scale;
      p[i] *= 1 - rate * weight_decay;
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      const double first_hat = m[i] / (1 - std::pow(beta1, step));
      const double second_hat = v[i] / (1 - std::pow(beta2, step));
      p[i] -= rate * first_hat / (std::sqrt(second_hat) + epsilon);
    }
  }
};

AdamWStep kernel(std::vector<Parameter>& parameters, int64_t step, float scale) {
  AdamWStep k{.segments = {},
              .learning_rate = rate,
              .beta1 = beta1,
              .beta2 = beta2,
              .epsilon = epsilon,
              .step = step,
              .gradient_scale = scale};
  for (Parameter& parameter : parameters) k.segments.push_back(parameter.segment());
  return k;
}

std::vector<Parameter> ten_steps(DType dtype, int threads) {
  std::vector<Parameter> parameters;
  for (const int64_t size : {1, 7, 0, 20000, 65, 17000})
    parameters.emplace_back(size, dtype, parameters.size() % 2 ? 0.1 : 0.0);
  for (int64_t step = 1; step <= 10; ++step) {
    for (Parameter& parameter : parameters)
      parameter.gradient = Values::uniform(parameter.value.shape(), dtype, static_cast<uint64_t>(step + 100));
    launch_on(threads, kernel(parameters, step, 0.5f));
    for (Parameter& parameter : parameters) parameter.reference_step(step, 0.5);
  }
  return parameters;
}

TEST(AdamW, TenStepsMatchTheDoubleReference) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const Parameter& parameter : ten_steps(dtype, 1)) {
      // Moments: three roundings a step of numbers below 1. The direction m / sqrt(v) is at most about 2 and
      // loses what m does, relative to sqrt(v) (about 0.5 here), times the rate; the parameter itself is
      // rounded at 2.
      const double unit = epsilon_of(dtype);
      const auto at = [](const std::vector<double>& of) {
        return [&of](int64_t i) { return of[static_cast<size_t>(i)]; };
      };
      expect_close(parameter.first, at(parameter.m), 0.0, 10 * unit);
      expect_close(parameter.second, at(parameter.v), 0.0, 10 * unit);
      expect_close(parameter.value, at(parameter.p), 0.0, 10 * (2 + rate * 30) * unit);
    }
}

TEST(AdamW, ThreadsDoNotShowInTheBits) {
  const auto one = ten_steps(DType::f32, 1), three = ten_steps(DType::f32, 3);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_TRUE(one[i].value == three[i].value);
    EXPECT_TRUE(one[i].first == three[i].first);
    EXPECT_TRUE(one[i].second == three[i].second);
  }
}

/// Shards of a parameter must give what the whole gives, wherever they are cut.
TEST(AdamW, SegmentsMayBeCutAnywhere) {
  const auto with_gradient = [] {
    std::vector<Parameter> parameters;
    parameters.emplace_back(1000, DType::f32, 0.1);
    parameters[0].gradient = Values::uniform({1000}, DType::f32, 9);
    return parameters;
  };
  auto whole = with_gradient(), cut = with_gradient();
  launch_on(1, kernel(whole, 3, 1.0f));
  AdamWStep k = kernel(cut, 3, 1.0f);
  AdamWSegment head = k.segments[0], tail = head;
  for (View* view : {&head.parameter, &head.gradient, &head.first_moment, &head.second_moment})
    view->shape = {333};
  for (View* view : {&tail.parameter, &tail.gradient, &tail.first_moment, &tail.second_moment}) {
    view->shape = {667};
    view->data = static_cast<float*>(view->data) + 333;
  }
  k.segments = {tail, head};
  launch_on(1, k);
  EXPECT_TRUE(whole[0].value == cut[0].value);
  EXPECT_TRUE(whole[0].second == cut[0].second);
}

TEST(AdamW, WrongStepAndShapesAreRefused) {
  std::vector<Parameter> parameters;
  parameters.emplace_back(5, DType::f32, 0.0);
  EXPECT_THROW(launch_on(1, kernel(parameters, 0, 1.0f)), Error);
  parameters[0].gradient = Values({4});
  EXPECT_THROW(launch_on(1, kernel(parameters, 1, 1.0f)), Error);
}

AdamWStep random_step(std::vector<Parameter>& parameters) {
  for (Parameter& parameter : parameters)
    parameter.gradient = Values::uniform(parameter.value.shape(), parameter.value.view().dtype, 9);
  return kernel(parameters, 3, 0.5f);
}

std::vector<Parameter> two_parameters(DType dtype = DType::f32) {
  std::vector<Parameter> parameters;
  parameters.emplace_back(1000, dtype, 0.1);
  parameters.emplace_back(17, dtype, 0.0);
  return parameters;
}

void expect_equal_bits(const std::vector<Parameter>& a, const std::vector<Parameter>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(a[i].value == b[i].value);
    EXPECT_TRUE(a[i].first == b[i].first);
    EXPECT_TRUE(a[i].second == b[i].second);
  }
}

TEST(AdamW, ScheduleAndClipReplaceTheirFields) {
  auto expected = two_parameters(), actual = two_parameters();
  launch_on(1, random_step(expected));
  AdamWStep k = random_step(actual);
  const auto numbers = adamw_schedule(rate, beta1, beta2, 3);
  Values schedule({3}, DType::f64), clip({});
  for (int64_t i = 0; i < 3; ++i) schedule.set(i, numbers[static_cast<size_t>(i)]);
  clip.set(0, 0.25);
  k.learning_rate = 77.0;
  k.step = 1;
  k.schedule = schedule.view();
  k.gradient_scale = 2.0f;
  k.clip = clip.view();
  launch_on(1, k);
  expect_equal_bits(actual, expected);
}

TEST(AdamW, NothingChangesIfTheClipFactorIsNotFinite) {
  for (const double factor : {std::nan(""), HUGE_VAL}) {
    auto expected = two_parameters(), actual = two_parameters();
    AdamWStep k = random_step(actual);
    Values clip({}), copy({1000}, DType::bf16), untouched({1000}, DType::bf16);
    clip.set(0, factor);
    k.clip = clip.view();
    k.segments[0].compute_copy = copy.view();
    launch_on(1, k);
    expect_equal_bits(actual, expected);
    EXPECT_TRUE(copy == untouched);
  }
}

TEST(AdamW, ComputeCopyIsTheRoundedParameter) {
  for (const DType master : {DType::f32, DType::f64})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      auto parameters = two_parameters(master);
      AdamWStep k = random_step(parameters);
      Values copy({1000}, dtype), expected({1000}, dtype);
      k.segments[0].compute_copy = copy.view();
      launch_on(3, k);
      for (int64_t i = 0; i < expected.size(); ++i) expected.set(i, parameters[0].value[i]);
      EXPECT_TRUE(copy == expected) << master << " " << dtype;
    }
}

/// A bf16 parameter without a master, and the same in f32.
struct Bf16Parameter {
  Values value, exact, gradient, first, second, exact_first, exact_second;

  explicit Bf16Parameter(int64_t size)
      : value(Values::uniform({size}, DType::bf16, 1)),
        exact({size}),
        gradient(Values::uniform({size}, DType::f32, 2)),
        first({size}),
        second({size}),
        exact_first({size}),
        exact_second({size}) {
    for (int64_t i = 0; i < size; ++i) exact.set(i, value[i]);
  }

  void step(int threads, Rounding rounding, uint64_t seed = 5, uint32_t site = 3, int64_t count = 1) {
    AdamWStep k{.segments = {{value.view(), gradient.view(), first.view(), second.view(), 0.1}},
                .learning_rate = rate,
                .step = count,
                .rounding = rounding,
                .seed = seed};
    k.segments[0].site = site;
    launch_on(threads, k);
    k.segments = {{exact.view(), gradient.view(), exact_first.view(), exact_second.view(), 0.1}};
    launch_on(1, k);
  }
};

TEST(AdamW, Bf16ParametersRoundToTheNearest) {
  Bf16Parameter parameter(3001);
  parameter.step(1, Rounding::nearest);
  Values expected({3001}, DType::bf16);
  for (int64_t i = 0; i < expected.size(); ++i) expected.set(i, parameter.exact[i]);
  EXPECT_TRUE(parameter.value == expected);
  EXPECT_TRUE(parameter.first == parameter.exact_first);
}

TEST(AdamW, StochasticRoundingIsRightOnAverage) {
  constexpr int64_t size = 100000;
  Bf16Parameter parameter(size);
  parameter.step(3, Rounding::stochastic);
  double sum = 0.0;
  for (int64_t i = 0; i < size; ++i) {
    const double spacing = std::exp2(std::floor(std::log2(std::fabs(parameter.exact[i]))) - 7);
    const double error = (parameter.value[i] - parameter.exact[i]) / spacing;
    ASSERT_LT(std::fabs(error), 1.0) << "element " << i << " went beyond a neighbour";
    sum += error;
  }
  // An error is d or d - 1 with the probabilities 1 - d and d: a variance of at most 1 / 4. Four sigma.
  EXPECT_NEAR(sum / size, 0.0, 4 * 0.5 / std::sqrt(size));
  // Up in one draw of 65536 where the distance is 2^-16; never away from what is not finite.
  EXPECT_EQ(round_stochastically(0x3f800001u, 0xfffeu), 0x3f80u);
  EXPECT_EQ(round_stochastically(0x3f800001u, 0xffffu), 0x3f81u);
  EXPECT_EQ(round_stochastically(0x7f800000u, 0xffffu), 0x7f80u);
  EXPECT_EQ(round_stochastically(0xff800001u, 0xffffu), 0xffc0u);
}

TEST(AdamW, StochasticRoundingDependsOnSeedSiteStepAndElementAlone) {
  const auto rounded = [](int threads, uint64_t seed, uint32_t site, int64_t count) {
    Bf16Parameter parameter(40001);
    parameter.step(threads, Rounding::stochastic, seed, site, count);
    return parameter.value;
  };
  const Values expected = rounded(1, 5, 3, 1);
  EXPECT_TRUE(rounded(3, 5, 3, 1) == expected);
  EXPECT_FALSE(rounded(1, 6, 3, 1) == expected);
  EXPECT_FALSE(rounded(1, 5, 4, 1) == expected);

  Bf16Parameter cut(40001);
  const auto part = [&](int64_t begin, int64_t end) {
    AdamWSegment segment{cut.value.view(), cut.gradient.view(), cut.first.view(), cut.second.view(), 0.1};
    for (View* view :
         {&segment.parameter, &segment.gradient, &segment.first_moment, &segment.second_moment}) {
      view->data = static_cast<std::byte*>(view->data) + begin * bytes(view->dtype);
      view->shape = {end - begin};
    }
    segment.site = 3;
    segment.first_element = begin;
    return segment;
  };
  launch_on(1, AdamWStep{.segments = {part(19, 40001), part(0, 19)},
                         .learning_rate = rate,
                         .rounding = Rounding::stochastic,
                         .seed = 5});
  EXPECT_TRUE(cut.value == expected);
}

}  // namespace
}  // namespace lockstep::testing
