// SPDX-License-Identifier: Apache-2.0
// Frozen inputs cost nothing in the backward. Trained inputs get the same gradient as without frozen ones.
#include <gtest/gtest.h>

#include "lockstep/kernels/kernel.h"
#include "lockstep/tensor/autograd.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"
#include "support/op_cases.h"

namespace lockstep::frozen_test {
namespace {

/// Returns small integers. Their sums are exact in any order.
Tensor integers(const Shape& shape, int32_t step) {
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(static_cast<int32_t>(i * 7 + static_cast<size_t>(step)) % 5 - 2);
  return from_values(values, shape);
}

struct Frozen {
  std::string name;
  std::vector<Shape> shapes;
  std::function<Tensor(const std::vector<Tensor>& in)> loss;
};

const Tensor frozen_targets() { return from_values<int32_t>({0, 3, -1, 1, 2, 3}, {6}); }

std::vector<Frozen> frozen_cases() {
  const auto line = [](WeightOrder order) {
    return [order](const std::vector<Tensor>& in) { return sum(linear(in[0], in[1], in[2], in[3], order)); };
  };
  const auto head = [](int64_t rows) {
    return [rows](const std::vector<Tensor>& in) {
      return linear_cross_entropy(in[0], in[1], frozen_targets(), rows);
    };
  };
  return {{"linear", {{2, 3, 5}, {5, 4}, {4}, {2, 3, 4}}, line(WeightOrder::in_out)},
          {"linear_out_in", {{2, 3, 5}, {4, 5}, {4}, {2, 3, 4}}, line(WeightOrder::out_in)},
          {"feed_forward",
           {{2, 3, 4}, {4, 8}, {8}, {8, 4}, {4}, {2, 3, 4}},
           [](const std::vector<Tensor>& in) {
             return sum(feed_forward(in[0], {in[1], in[2], in[3], in[4]}, Gelu::tanh, in[5]));
           }},
          {"head", {{6, 3}, {4, 3}}, head(0)},
          {"head_in_parts", {{6, 3}, {4, 3}}, head(4)},
          {"add_positions", {{2, 3, 4}, {3, 4}}, [](const std::vector<Tensor>& in) {
             return sum(add_positions(in[0], in[1]));
           }}};
}

/// Returns the gradients and the number of kernels that the backward launched. Input i is trained if bit i is
/// set.
std::pair<std::vector<Tensor>, uint64_t> gradients_of(const Frozen& one, size_t trained) {
  std::vector<Tensor> in, gradients;
  for (size_t i = 0; i < one.shapes.size(); ++i)
    in.push_back(integers(one.shapes[i], static_cast<int32_t>(i)).set_requires_grad((trained >> i & 1) != 0));
  const Tensor loss = one.loss(in);
  const uint64_t before = launches_of_this_thread();
  backward(loss);
  const uint64_t launches = launches_of_this_thread() - before;
  for (const Tensor& tensor : in) gradients.push_back(tensor.requires_grad() ? tensor.grad() : Tensor());
  return {gradients, launches};
}

TEST(Frozen, InputsChangeNoOthersGradientAndSaveWork) {
  for (const Frozen& one : frozen_cases()) {
    const size_t inputs = one.shapes.size(), all = (size_t{1} << inputs) - 1;
    const auto [expected, most] = gradients_of(one, all);
    for (size_t trained = 1; trained < all; ++trained) {
      const auto [gradients, launches] = gradients_of(one, trained);
      for (size_t i = 0; i < inputs; ++i) {
        const Tensor none = full(expected[i].shape(), 0.0);
        const Tensor difference =
            subtract(gradients[i] ? gradients[i] : none, gradients[i] ? expected[i] : none);
        // Another kernel sums a bias whose weight is frozen. The difference shows where GELU's results are no
        // integers.
        for (const double value : to_doubles(difference))
          EXPECT_NEAR(value, 0.0, one.name == "feed_forward" ? 1e-5 : 0.0)
              << one.name << " " << i << " of " << trained;
      }
      EXPECT_LE(launches, most) << one.name << " " << trained;
    }
  }
}

TEST(Frozen, AWeightsProductIsNotComputed) {
  const auto cases = frozen_cases();
  const auto saved = [&](size_t which, size_t frozen) {
    const size_t all = (size_t{1} << cases[which].shapes.size()) - 1;
    return gradients_of(cases[which], all).second - gradients_of(cases[which], all & ~frozen).second;
  };
  // Each frozen weight saves its product and the copy of its gradient to a new leaf.
  EXPECT_EQ(saved(0, 0b0110), 3U) << "weight and bias of linear";
  EXPECT_GE(saved(2, 0b11110), 4U) << "both layers of feed_forward";
  EXPECT_GE(saved(2, 0b00111), 3U) << "with the hidden layer's gradient";
  EXPECT_GE(saved(3, 0b10), 1U) << "the head";
}

}  // namespace
}  // namespace lockstep::frozen_test
