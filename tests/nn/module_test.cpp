// SPDX-License-Identifier: Apache-2.0
#include "lockstep/nn/module.h"

#include "lockstep/nn/layers.h"
#include "lockstep/parameters/parameter_space.h"
#include "lockstep/tensor/ops.h"
#include "support/gradient_check.h"

namespace lockstep::module_test {
namespace {

/// A module like a user's: one parameter of its own, one part, and the part's weight once more.
class Scaled : public Module {
 public:
  Scaled()
      : factor_(add_parameter("factor", {1}, constant_values(0.0), DType::f64)),
        part_(2, 3, true, DType::f64) {
    add_part("inner", part_);
    add_part("again", part_);
  }

 private:
  Tensor factor_;
  Linear part_;
};

TEST(Module, ListsParametersDepthFirstWithDottedNames) {
  const Scaled module;
  std::string names;
  for (const auto& [name, tensor] : module.parameters("model.")) names += name + " ";
  EXPECT_EQ(names, "model.factor model.inner.weight model.inner.bias model.again.weight model.again.bias ");
}

TEST(Module, ATensorInTwoPlacesCountsOnce) {
  EXPECT_EQ(count_parameters(Scaled().parameters()), 1 + 2 * 3 + 3);
}

TEST(Module, ParametersAreLeavesThatLayersInitialize) {
  for (const auto& [name, tensor] : Scaled().parameters()) {
    EXPECT_TRUE(tensor.requires_grad()) << name;
    EXPECT_EQ(tensor.dtype(), DType::f64);
    const double squares = item(sum(multiply(tensor, tensor).detach()));
    EXPECT_EQ(squares > 0.0, name != "factor") << name;
  }
}

TEST(Module, LayerNormStartsAsTheIdentitysScale) {
  const LayerNorm norm(4);
  EXPECT_EQ(to_doubles(norm.parameters()[0].tensor), std::vector<double>(4, 1.0));
  EXPECT_EQ(to_doubles(norm.parameters()[1].tensor), std::vector<double>(4, 0.0));
  EXPECT_EQ(LayerNorm(4, false).parameters().size(), 1U);
}

// U(-b, b) has the variance b^2 / 3. An estimate from n draws is accurate to b^2 sqrt(4 / 45 / n).
TEST(Module, LinearsStartAsInPyTorch) {
  const Linear layer(25, 400);
  initialize(layer.parameters(), 3);
  const double bound = 0.2;
  for (const auto& [name, tensor] : layer.parameters()) {
    double squares = 0.0;
    for (const double value : to_doubles(tensor)) {
      ASSERT_GE(value, -bound) << name;
      ASSERT_LE(value, bound) << name;
      squares += value * value;
    }
    const auto n = static_cast<double>(tensor.size());
    EXPECT_NEAR(squares / n, bound * bound / 3, 5 * bound * bound * std::sqrt(4.0 / 45.0 / n)) << name;
  }
}

// The values are small integers that 16 bits represent exactly. The result and the gradients thus equal those
// of fp32.
TEST(Module, AnMlpComputesIn16BitsAndGivesFp32) {
  const Tensor x = from_values<float>({1, -2, 3, 0, 5, 2}, {2, 3}).set_requires_grad();
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Mlp model({3, 4, 2});
    for (const auto& [name, tensor] : model.parameters())
      for (int64_t i = 0; i < tensor.size(); ++i) tensor.data<float>()[i] = static_cast<float>(i % 5 - 2);
    const auto run = [&] {
      const Tensor y = model(x);
      EXPECT_EQ(y.dtype(), DType::f32);
      backward(sum(y));
      std::vector<Tensor> results{y.detach(), scale(x.grad(), 1.0)};
      for (const auto& [name, tensor] : model.parameters()) results.push_back(scale(tensor.grad(), 1.0));
      return results;
    };
    const std::vector<Tensor> expected = run();
    ParameterSpace space(model.parameters());
    space.set_precision(dtype);
    const std::vector<Tensor> actual = run();
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(has_same_bits(actual[i], expected[i])) << i;
    model.parameters()[0].tensor.data<float>()[0] -= 0x1p-12f;  // rounds to the previous 16-bit value
    space.copies.refresh();
    EXPECT_TRUE(has_same_bits(model(x), expected[0])) << "the model reads the 16-bit copy";
  }
}

}  // namespace
}  // namespace lockstep::module_test
