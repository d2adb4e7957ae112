// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/adamw.h"

#include "kernels/expectations.h"

namespace lockstep::testing {
namespace {

constexpr double rate = 1e-2, beta1 = 0.9, beta2 = 0.99, epsilon = 1e-8;

/// One parameter with its state, and a copy in double that follows the textbook's formula.
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

  AdamWSlice slice() { return {value.view(), gradient.view(), first.view(), second.view(), weight_decay}; }

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
  AdamWStep k{.slices = {},
              .learning_rate = rate,
              .beta1 = beta1,
              .beta2 = beta2,
              .epsilon = epsilon,
              .step = step,
              .gradient_scale = scale};
  for (Parameter& parameter : parameters) k.slices.push_back(parameter.slice());
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
      // The moments round three times per step, at values below 1. The direction m / sqrt(v) is at most about
      // 2. The errors of m reach it relative to sqrt(v), which is about 0.5 here. They are multiplied by the
      // rate. The parameter itself is rounded at 2.
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

/// Shards of a parameter must give the result of the whole parameter, wherever the cuts are.
TEST(AdamW, SlicesMayBeCutAnywhere) {
  const auto with_gradient = [] {
    std::vector<Parameter> parameters;
    parameters.emplace_back(1000, DType::f32, 0.1);
    parameters[0].gradient = Values::uniform({1000}, DType::f32, 9);
    return parameters;
  };
  auto whole = with_gradient(), cut = with_gradient();
  launch_on(1, kernel(whole, 3, 1.0f));
  AdamWStep k = kernel(cut, 3, 1.0f);
  AdamWSlice head = k.slices[0], tail = head;
  for (View* view : {&head.parameter, &head.gradient, &head.first_moment, &head.second_moment})
    view->shape = {333};
  for (View* view : {&tail.parameter, &tail.gradient, &tail.first_moment, &tail.second_moment}) {
    view->shape = {667};
    view->data = static_cast<float*>(view->data) + 333;
  }
  k.slices = {tail, head};
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
    k.slices[0].compute_copy = copy.view();
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
      k.slices[0].compute_copy = copy.view();
      launch_on(3, k);
      for (int64_t i = 0; i < expected.size(); ++i) expected.set(i, parameters[0].value[i]);
      EXPECT_TRUE(copy == expected) << master << " " << dtype;
    }
}

/// A slice's factor multiplies its learning rate, also in the weight decay.
TEST(AdamW, ASliceMayHaveALearningRateOfItsOwn) {
  auto halved = two_parameters(DType::f32), expected = two_parameters(DType::f32);
  AdamWStep k = random_step(halved), half = random_step(expected);
  for (AdamWSlice& slice : k.slices) slice.learning_rate_factor = 0.5;
  half.learning_rate *= 0.5;
  launch_on(1, k);
  launch_on(1, half);
  for (size_t p = 0; p < 2; ++p) EXPECT_TRUE(halved[p].value == expected[p].value);
}

}  // namespace
}  // namespace lockstep::testing
