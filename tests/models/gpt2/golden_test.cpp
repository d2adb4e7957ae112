// SPDX-License-Identifier: Apache-2.0
// Compares with PyTorch: single operations, two optimizers, and two small GPTs from the logits to ten steps
// of AdamW.
#include "support/golden.h"

#include <functional>

#include "lockstep/kernels/sum.h"
#include "lockstep/models/gpt2/gpt.h"
#include "lockstep/models/gpt2/initial_weights.h"
#include "lockstep/nn/module.h"
#include "lockstep/parameters/grad_scaler.h"
#include "lockstep/parameters/gradient_norm.h"
#include "lockstep/parameters/optimizer.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::golden_test {
namespace {

class GoldenTest : public testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Precisions, GoldenTest, testing::Values(DType::f32, DType::f64),
                         [](const auto& precision) { return name(precision.param); });

using Operation = std::function<Tensor(const std::vector<Tensor>& inputs)>;

/// Checks the forward and all gradients. The golden file has <op>.<input>, <op>.dy, <op>.y and <op>.d<input>.
void check_operation(DType dtype, const std::string& op, const std::vector<std::string>& names,
                     const Operation& operation) {
  const Golden golden("ops");
  std::vector<Tensor> inputs;
  for (const std::string& input : names)
    inputs.push_back(golden.tensor(op + "." + input, dtype).set_requires_grad());
  const Tensor y = operation(inputs);
  golden.expect_near(op + ".y", y, dtype);
  backward(sum(multiply(y, golden.tensor(op + ".dy", dtype))));
  for (size_t i = 0; i < names.size(); ++i) golden.expect_near(op + ".d" + names[i], inputs[i].grad(), dtype);
}

TEST_P(GoldenTest, LayerNorm) {
  const Operation operation = [](const auto& in) { return layer_norm(in[0], in[1], in[2]); };
  check_operation(dtype(), "layer_norm", {"x", "weight", "bias"}, operation);
  check_operation(dtype(), "layer_norm_offset", {"x", "weight", "bias"}, operation);
}

TEST_P(GoldenTest, Gelu) {
  check_operation(dtype(), "gelu_tanh", {"x"}, [](const auto& in) { return gelu(in[0], Gelu::tanh); });
  check_operation(dtype(), "gelu_erf", {"x"}, [](const auto& in) { return gelu(in[0], Gelu::erf); });
}

TEST_P(GoldenTest, CausalAttention) {
  check_operation(dtype(), "attention", {"qkv"}, [](const auto& in) { return causal_attention(in[0], 3); });
}

TEST_P(GoldenTest, CrossEntropy) {
  const Tensor targets = Golden("ops").stored("cross_entropy.targets");
  check_operation(dtype(), "cross_entropy", {"x"},
                  [&](const auto& in) { return cross_entropy(in[0], targets); });
}

/// Checks five steps of an optimizer on given gradients. Its state has PyTorch's names.
template <class Optimizer>
void check_optimizer(DType dtype, const std::string& name, const typename Optimizer::Options& options) {
  constexpr double learning_rate = 0.02;
  const Golden golden("ops");
  Tensor parameter = golden.tensor(name + ".initial", dtype).set_requires_grad();
  const Tensor gradients = golden.tensor(name + ".gradients", dtype);
  ParameterSpace space({{name, parameter}});
  Optimizer optimizer(space, options);
  for (int64_t step = 0; step < gradients.shape()[0]; ++step) {
    backward(sum(multiply(parameter, gradients.slice(step, step + 1).reshape(parameter.shape()))));
    optimizer.step(learning_rate);
  }
  golden.expect_near(name + ".final", parameter, dtype);
  for (const NamedTensor& state : optimizer.state()) golden.expect_near(state.name, state.tensor, dtype);
}

TEST_P(GoldenTest, AdamW) {
  check_optimizer<AdamW>(dtype(), "adamw", {.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1});
}

TEST_P(GoldenTest, Sgd) { check_optimizer<Sgd>(dtype(), "sgd", {.momentum = 0.9, .weight_decay = 0.1}); }

/// A GPT with the parameters of a golden file, and its batches.
class GoldenGpt {
 public:
  GoldenGpt(const std::string& file, const Gpt::Options& options)
      : golden_(file),
        in_16_bits_(file + "_16_bits"),
        dtype_(options.dtype),
        model_(options, 0),
        parameters_(model_.parameters()) {
    EXPECT_EQ(std::ssize(parameters_), golden_.count("initial."));
    for (const NamedTensor& parameter : parameters_)
      copy(ordered(parameter.name, golden_.tensor("initial." + parameter.name, dtype_)), parameter.tensor);
  }

  void check_first_batch() {
    const Tensor logits = model_(batch("inputs", 0), {});
    golden_.expect_near("logits", logits, dtype_);
    backward(cross_entropy(logits, batch("targets", 0)));
    for (const NamedTensor& parameter : parameters_)
      golden_.expect_near("gradient." + parameter.name, ordered(parameter.name, parameter.tensor.grad()),
                          dtype_);
  }

  /// Checks ten steps with the tolerances of `precision`.
  void check_ten_steps(DType precision) {
    constexpr double learning_rate = 1e-3, max_norm = 2.0;
    ParameterSpace space(parameters_, {.group = matrices_decay});
    AdamW optimizer(space, {.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1});
    std::vector<double> losses, norms;
    for (int64_t step = 0; step < golden_.stored("inputs").shape()[0]; ++step) {
      const Tensor loss = cross_entropy(model_(batch("inputs", step), {}), batch("targets", step));
      losses.push_back(item(loss));
      backward(loss);
      norms.push_back(gradient_norm(space));
      optimizer.step(learning_rate, clip_factor(norms.back(), max_norm));
    }
    golden_.expect_near("losses", from_values(losses, {std::ssize(losses)}), precision);
    golden_.expect_near("gradient_norms", from_values(norms, {std::ssize(norms)}), precision);
    for (const NamedTensor& parameter : parameters_)
      golden_.expect_near("final." + parameter.name, ordered(parameter.name, parameter.tensor), precision);
  }

  /// Checks logits, gradients and ten steps in 16 bits. f16 uses the usual constants of a GradScaler.
  void check_in_16_bits(DType dtype) {
    constexpr double learning_rate = 1e-3, max_norm = 2.0;
    ParameterSpace space(parameters_, {.group = matrices_decay});
    space.set_precision(dtype);
    AdamW optimizer(space, {.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1});
    // The scale is 1 in bf16, which changes nothing.
    GradScaler scaler(space, {.initial_scale = dtype == DType::f16 ? 65536.0 : 1.0});
    std::vector<double> losses, norms;
    for (int64_t step = 0; step < golden_.stored("inputs").shape()[0]; ++step) {
      const Tensor logits = model_(batch("inputs", step), {});
      const Tensor loss = cross_entropy(logits, batch("targets", step), -1, scaler.scale());
      scaler.backward(loss);
      losses.push_back(item(loss));
      if (step == 0) {
        scaler.unscale();
        expect_as_near(dtype, "logits", logits);
        for (const NamedTensor& parameter : parameters_)
          expect_as_near(dtype, "gradient." + parameter.name,
                         ordered(parameter.name, parameter.tensor.grad()));
      }
      norms.push_back(item(scaler.step(optimizer, learning_rate, max_norm).norm));
      scaler.update();
    }
    EXPECT_EQ(scaler.state().skipped_steps, 0);
    expect_as_near(dtype, "losses", from_values(losses, {std::ssize(losses)}));
    expect_as_near(dtype, "gradient_norms", from_values(norms, {std::ssize(norms)}));
    for (const NamedTensor& parameter : parameters_)
      expect_as_near(dtype, "final." + parameter.name, ordered(parameter.name, parameter.tensor));
  }

 private:
  /// Converts a weight between the file's order [out, in] and the model's order.
  static Tensor ordered(const std::string& name, const Tensor& values) {
    return is_in_out(name) ? transpose(values) : values;
  }

  Tensor batch(const std::string& name, int64_t step) const {
    const Tensor& all = golden_.stored(name);
    return all.slice(step, step + 1).reshape({all.shape()[1], all.shape()[2]});
  }

  /// Fails unless `actual` is about as far from double precision as PyTorch's 16 bits are. Its mean distance
  /// is at most twice theirs. Its largest distance is at most four times theirs. The largest is not checked
  /// for values that AdamW updated: near-zero gradients get their direction from rounding.
  void expect_as_near(DType dtype, const std::string& name, const Tensor& actual) const {
    const std::vector<double> values = to_doubles(actual), exact = to_doubles(golden_.stored(name));
    const std::vector<double> theirs = to_doubles(in_16_bits_.stored(concat(dtype, ".", name, ".error")));
    ASSERT_EQ(values.size(), exact.size()) << name;
    double sum = 0.0, largest = 0.0;
    for (size_t i = 0; i < exact.size(); ++i) {
      ASSERT_TRUE(std::isfinite(values[i])) << name << "[" << i << "]";
      sum += std::abs(values[i] - exact[i]);
      largest = std::max(largest, std::abs(values[i] - exact[i]));
    }
    EXPECT_LE(sum / static_cast<double>(exact.size()), 2 * theirs[1]) << dtype << " " << name;
    EXPECT_TRUE(largest <= 4 * theirs[0] || name.starts_with("final."))
        << dtype << " " << name << " " << largest;
  }

  Golden golden_, in_16_bits_;
  DType dtype_;
  Gpt model_;
  std::vector<NamedTensor> parameters_;
};

GoldenGpt tied(DType dtype) {
  return {"gpt_tied",
          {.vocabulary = 37, .block_size = 13, .layers = 2, .heads = 3, .width = 24, .dtype = dtype}};
}

GoldenGpt untied(DType dtype) {
  return {"gpt_untied",
          {.vocabulary = 41,
           .block_size = 16,
           .layers = 2,
           .heads = 4,
           .width = 20,
           .has_bias = false,
           .tie_weights = false,
           .activation = Gelu::erf,
           .dtype = dtype}};
}

TEST_P(GoldenTest, LogitsAndGradients) {
  tied(dtype()).check_first_batch();
  untied(dtype()).check_first_batch();
}

// The clip factor is an fp32 number in f64 too. Steps that are clipped can therefore match only to single
// precision.
TEST_P(GoldenTest, TenStepsOfWhichSomeAreClipped) { tied(dtype()).check_ten_steps(DType::f32); }

TEST_P(GoldenTest, TenStepsWithoutClipping) { untied(dtype()).check_ten_steps(dtype()); }

class GoldenIn16Bits : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Precisions, GoldenIn16Bits, testing::Values(DType::bf16, DType::f16),
                         [](const auto& precision) { return name(precision.param); });

// Both round the stored values to 16 bits in much the same places and compute in fp32. Their distances from
// double precision are thus draws of one distribution. If only one of them rounds, it is PyTorch, which
// rounds gradients of weights.
TEST_P(GoldenIn16Bits, AreAsNearToDoublePrecisionAsPyTorch) {
  tied(DType::f32).check_in_16_bits(GetParam());
  untied(DType::f32).check_in_16_bits(GetParam());
}

}  // namespace
}  // namespace lockstep::golden_test
