// SPDX-License-Identifier: Apache-2.0
// Compares ten steps of each optimizer with its definition in doubles.
#include "lockstep/parameters/optimizer.h"

#include <cmath>
#include <vector>

#include "lockstep/kernels/sum.h"
#include "lockstep/parameters/gradient_norm.h"
#include "lockstep/tensor/ops.h"
#include "support/gradient_check.h"

namespace lockstep::optimizer_test {
namespace {

constexpr int steps = 10;
constexpr double learning_rate = 0.05, weight_decay = 0.1, max_norm = 2.0;

/// A matrix and a vector whose gradients differ in every step.
struct Model {
  std::vector<NamedTensor> parameters;

  explicit Model(DType dtype) {
    parameters.push_back({"matrix", uniform_tensor({3, 7}, 1, dtype)});
    parameters.push_back({"vector", uniform_tensor({5}, 2, dtype)});
    for (NamedTensor& parameter : parameters) parameter.tensor.set_requires_grad();
  }

  /// Returns all that an optimizer needs. A new space uses the parameters' current memory.
  std::unique_ptr<ParameterSpace> space() const {
    return std::make_unique<ParameterSpace>(parameters, SpaceOptions{.group = matrices_decay});
  }

  void compute_gradients(int step) const {
    for (uint32_t p = 0; p < 2; ++p) {
      const Tensor& tensor = parameters[p].tensor;
      backward(sum(multiply(tensor, uniform_tensor(tensor.shape(), gradient_id(step, p), tensor.dtype()))));
    }
  }

  static uint32_t gradient_id(int step, uint32_t p) { return 10 + 2 * static_cast<uint32_t>(step) + p; }
};

/// The definition for one parameter: values, gradient of the step, decay.
struct Reference {
  std::vector<double> values, first, second;
  double decay = 0.0;

  Reference(const Shape& shape, uint32_t id, double decay_of_shape)
      : values(to_doubles(uniform_tensor(shape, id))),
        first(values.size()),
        second(values.size()),
        decay(decay_of_shape) {}

  void adamw(const std::vector<double>& gradient, double clip, int t, const AdamW::Options& options) {
    for (size_t i = 0; i < values.size(); ++i) {
      const double g = clip * gradient[i];
      first[i] = options.beta1 * first[i] + (1 - options.beta1) * g;
      second[i] = options.beta2 * second[i] + (1 - options.beta2) * g * g;
      const double m = first[i] / (1 - std::pow(options.beta1, t));
      const double v = second[i] / (1 - std::pow(options.beta2, t));
      values[i] -= learning_rate * decay * values[i];
      values[i] -= learning_rate * m / (std::sqrt(v) + options.epsilon);
    }
  }

  void sgd(const std::vector<double>& gradient, double clip, double momentum) {
    for (size_t i = 0; i < values.size(); ++i) {
      first[i] = momentum * first[i] + clip * gradient[i] + decay * values[i];
      values[i] -= learning_rate * first[i];
    }
  }
};

class OptimizerTest : public testing::TestWithParam<DType> {
 protected:
  /// Runs the optimizer and the definition `step_reference(reference, gradient, clip, t)`. Values are below
  /// 2.5. Each step rounds a value a few times, twelve half units in all. The clip factor is an fp32 number.
  template <class StepReference>
  void check(Optimizer& optimizer, const Model& model, bool clips, double vector_decay,
             StepReference step_reference) {
    std::vector<Reference> references;
    references.emplace_back(Shape{3, 7}, 1, weight_decay);
    references.emplace_back(Shape{5}, 2, vector_decay);
    for (int step = 0; step < steps; ++step) {
      model.compute_gradients(step);
      const float clip = clips ? clip_factor(gradient_norm(optimizer.space()), max_norm) : 1.0f;
      clipped_ += clip < 1.0f;
      optimizer.step(learning_rate, clip);
      for (uint32_t p = 0; p < 2; ++p) {
        const std::vector<double> gradient =
            to_doubles(uniform_tensor(model.parameters[p].tensor.shape(), Model::gradient_id(step, p)));
        step_reference(references[p], gradient, clip, step + 1);
      }
    }
    EXPECT_EQ(optimizer.steps_taken(), steps);
    const double half_unit = GetParam() == DType::f32 ? 0x1p-24 : 0x1p-53;
    for (size_t p = 0; p < 2; ++p) {
      const std::vector<double> values = to_doubles(model.parameters[p].tensor);
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(values[i], references[p].values[i], 12 * steps * 2.5 * half_unit)
            << model.parameters[p].name << ", element " << i;
    }
  }

  int clipped_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Precisions, OptimizerTest, testing::Values(DType::f32, DType::f64),
                         [](const auto& precision) { return name(precision.param); });

TEST_P(OptimizerTest, AdamWDecaysMatricesOnly) {
  const AdamW::Options options{.beta1 = 0.9, .beta2 = 0.95, .weight_decay = weight_decay};
  for (const bool clips : {false, true}) {
    const Model model(GetParam());
    const auto space = model.space();
    AdamW optimizer(*space, options);
    check(optimizer, model, clips, 0.0, [&](Reference& reference, const auto& gradient, double clip, int t) {
      reference.adamw(gradient, clip, t, options);
    });
  }
  EXPECT_GT(clipped_, 0);
  EXPECT_LT(clipped_, 2 * steps);
}

TEST_P(OptimizerTest, SgdWithAndWithoutMomentum) {
  for (const double momentum : {0.0, 0.9})
    for (const bool clips : {false, true}) {
      const Model model(GetParam());
      ParameterSpace space(model.parameters);
      Sgd optimizer(space, {.momentum = momentum, .weight_decay = weight_decay});
      check(optimizer, model, clips, weight_decay,
            [&](Reference& reference, const auto& gradient, double clip, int) {
              reference.sgd(gradient, clip, momentum);
            });
      EXPECT_EQ(optimizer.state().size(), momentum == 0.0 ? 0U : 2U);
    }
}

/// A new optimizer with the state of another must continue exactly from it.
template <class Kind>
void check_state_is_complete(const typename Kind::Options& options) {
  const Model model(DType::f32), copied(DType::f32);
  const auto space = model.space(), other_space = copied.space();
  Kind original(*space, options), resumed(*other_space, options);
  for (int step = 0; step < 3; ++step) {
    model.compute_gradients(step);
    original.step(learning_rate);
  }
  for (size_t p = 0; p < 2; ++p) copy(model.parameters[p].tensor, copied.parameters[p].tensor);
  const std::vector<NamedTensor> from = original.state(), to = resumed.state();
  ASSERT_EQ(from.size(), to.size());
  for (size_t s = 0; s < from.size(); ++s) {
    EXPECT_EQ(from[s].name, to[s].name);
    copy(from[s].tensor, to[s].tensor);
  }
  resumed.set_steps_taken(original.steps_taken());
  for (const Model* each : {&model, &copied}) each->compute_gradients(3);
  original.step(learning_rate);
  resumed.step(learning_rate);
  for (size_t p = 0; p < 2; ++p)
    EXPECT_TRUE(has_same_bits(model.parameters[p].tensor, copied.parameters[p].tensor));
}

TEST(Optimizer, StateIsAllThatASnapshotNeeds) {
  check_state_is_complete<AdamW>({.weight_decay = 0.1});
  check_state_is_complete<Sgd>({.momentum = 0.9});
  const Model model(DType::f32);
  const auto space = model.space();
  const std::vector<NamedTensor> state = AdamW(*space, {}).state();
  ASSERT_EQ(state.size(), 4U);
  EXPECT_EQ(state[0].name, "matrix.exp_avg");
  EXPECT_EQ(state[1].name, "vector.exp_avg");
  EXPECT_EQ(state[3].name, "vector.exp_avg_sq");
}

/// A table that is both embedding and head is one parameter, as in PyTorch's parameters(). It gets one update
/// and one term of the norm.
TEST(Optimizer, ATensorThatIsListedTwiceIsUpdatedOnce) {
  const Model once(DType::f32), twice(DType::f32);
  std::vector<NamedTensor> listed = twice.parameters;
  listed.push_back({"head", twice.parameters[0].tensor});
  const auto space = once.space();
  ParameterSpace tied_space(listed, {.group = matrices_decay});
  AdamW expected(*space, {.weight_decay = 0.1}), tied(tied_space, {.weight_decay = 0.1});
  for (int step = 0; step < 3; ++step) {
    once.compute_gradients(step);
    twice.compute_gradients(step);
    EXPECT_NEAR(gradient_norm(tied_space), gradient_norm(*space), 1e-12);
    expected.step(learning_rate);
    tied.step(learning_rate);
  }
  for (size_t p = 0; p < 2; ++p)
    EXPECT_TRUE(has_same_bits(once.parameters[p].tensor, twice.parameters[p].tensor));
  EXPECT_EQ(tied.state().size(), 4U);
}

/// After every step the 16-bit copies must be the rounded values.
template <class Kind>
void check_copies_are_renewed(const typename Kind::Options& options) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Model model(DType::f32);
    const auto space = model.space();
    model.compute_gradients(0);
    space->set_precision(dtype);
    Kind optimizer(*space, options);
    for (int step = 0; step < 3; ++step) {
      const Tensor before = convert(space->copies(), DType::f32);
      optimizer.step(learning_rate);
      EXPECT_TRUE(has_same_bits(space->copies(), convert(space->values(), dtype))) << dtype;
      EXPECT_FALSE(has_same_bits(convert(space->copies(), DType::f32), before)) << dtype;
    }
  }
}

TEST(Optimizer, CopiesInSixteenBitsAreRenewed) {
  check_copies_are_renewed<AdamW>({});
  check_copies_are_renewed<Sgd>({.momentum = 0.9});
}

TEST(Optimizer, AMissingGradientIsNamed) {
  const Model model(DType::f32);
  backward(sum(model.parameters[0].tensor));
  const auto space = model.space();
  AdamW adamw(*space, {});
  Sgd sgd(*space, {});
  for (Optimizer* optimizer : {static_cast<Optimizer*>(&adamw), static_cast<Optimizer*>(&sgd)}) try {
      optimizer->step(learning_rate);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find("vector has no gradient"), 0U) << error.what();
    }
  EXPECT_THROW(gradient_norm(*space), Error);
}

TEST(GradientClip, TheNormIsOverAllParameters) {
  Tensor a = from_values<double>({3, 4}, {2}), b = from_values<double>({12}, {1, 1});
  ParameterSpace space({{"a", a.set_requires_grad()}, {"b", b.set_requires_grad()}});
  backward(scale(sum(multiply(a, a)), 0.5));
  backward(scale(sum(multiply(b, b)), 0.5));
  EXPECT_EQ(gradient_norm(space), 13.0);
  ParameterSpace nothing({});
  EXPECT_EQ(gradient_norm(nothing), 0.0);
}

TEST(GradientClip, TheFactorBringsTheNormToItsLimit) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0f);
  EXPECT_EQ(clip_factor(4.0, 1.0), static_cast<float>(1.0 / (4.0 + 1e-6)));
  EXPECT_EQ(clip_factor(1e30, 0.0), 1.0f) << "off";
  EXPECT_EQ(clip_factor(0.0, 1.0), 1.0f);
}

}  // namespace
}  // namespace lockstep::optimizer_test
