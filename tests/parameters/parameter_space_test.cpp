// SPDX-License-Identifier: Apache-2.0
#include "lockstep/parameters/parameter_space.h"

#include <gtest/gtest.h>

#include "lockstep/parameters/gradient_norm.h"
#include "lockstep/tensor/autograd.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"

namespace lockstep {
namespace {

constexpr int64_t block = ParameterLayout::block;

Tensor leaf(int64_t size, bool is_trained = true) {
  Tensor tensor = full({size}, 1.0);
  return tensor.set_requires_grad(is_trained);
}

/// Returns a model with a table that is also the head, a parameter of two blocks, a frozen one and a norm.
std::vector<NamedTensor> small_model() {
  const Tensor table = leaf(5000);
  return {{"table.weight", table},           {"h.0.weight", leaf(100)},       {"h.0.bias", leaf(3)},
          {"frozen.weight", leaf(9, false)}, {"h.1.weight", leaf(2 * block)}, {"h.1.bias", leaf(1)},
          {"norm.weight", leaf(16)},         {"head.weight", table}};
}

TEST(ParameterSpace, UnitsLieInReverseOrderOnBlocksAndFrozenOnesLast) {
  const ParameterSpace space(small_model());
  ASSERT_EQ(space.layout.parameters().size(), 7U);
  const auto place = [&](size_t p) { return space.layout.parameters()[p].place; };
  EXPECT_EQ(space.layout.parameters()[0].other_names, std::vector<std::string>{"head.weight"});
  EXPECT_EQ(place(6), (Range{0, 16})) << "norm";
  EXPECT_EQ(place(5), (Range{block, block + 1})) << "h.1.bias";
  EXPECT_EQ(place(4), (Range{block + 16, 3 * block + 16})) << "h.1.weight";
  EXPECT_EQ(place(2), (Range{4 * block, 4 * block + 3})) << "h.0.bias";
  EXPECT_EQ(place(1), (Range{4 * block + 16, 4 * block + 116})) << "h.0.weight";
  EXPECT_EQ(place(0), (Range{5 * block, 5 * block + 5000})) << "table";
  EXPECT_EQ(place(3), (Range{7 * block, 7 * block + 9})) << "frozen";
  EXPECT_EQ(space.layout.units(), (std::vector<Range>{{0, block},
                                                      {block, 4 * block},
                                                      {4 * block, 5 * block},
                                                      {5 * block, 7 * block},
                                                      {7 * block, 8 * block}}));
  EXPECT_EQ(space.layout.trainable_elements(), 7 * block);
  EXPECT_EQ(space.layout.elements(), 8 * block);
}

TEST(ParameterSpace, OwnedRangesCutEveryUnitOnBlocksAndCoverItOnce) {
  const ParameterSpace space(small_model());
  for (int ranks = 1; ranks <= 5; ++ranks) {
    std::vector<int> owners(static_cast<size_t>(space.layout.trainable_elements() / block));
    for (const std::vector<Range>& owned : space.layout.owned_ranges(ranks))
      for (const Range& range : owned) {
        EXPECT_EQ(range.begin % block + range.end % block, 0);
        for (int64_t b = range.begin / block; b < range.end / block; ++b) ++owners[static_cast<size_t>(b)];
      }
    EXPECT_EQ(owners, std::vector<int>(owners.size(), 1)) << ranks << " ranks";
  }
  EXPECT_EQ(space.layout.owned_ranges(2)[0],
            (std::vector<Range>{{block, 2 * block}, {5 * block, 6 * block}}));
}

TEST(ParameterSpace, ValuesMoveAndTensorsStayTheSame) {
  const std::vector<NamedTensor> model = small_model();
  fill(model[1].tensor, 7.0);
  const ParameterSpace space(model);
  EXPECT_EQ(to_doubles(model[1].tensor), std::vector<double>(100, 7.0));
  const Range place = space.layout.parameters()[1].place;
  fill(space.values().part(place), 3.0);
  EXPECT_EQ(to_doubles(model[1].tensor), std::vector<double>(100, 3.0));
  const ParameterSpace again(model);
  EXPECT_EQ(to_doubles(model[1].tensor), std::vector<double>(100, 3.0));
}

TEST(ParameterSpace, GroupsCutRangesAndLeaveFrozenParametersOut) {
  const auto rule = [](const std::string& name, const Tensor&) {
    return ParameterGroup{.decays = !name.ends_with("bias"), .learning_rate_factor = 1.0};
  };
  const ParameterSpace space(small_model(), {.group = rule});
  std::vector<std::pair<Range, bool>> found;
  for (const auto& [range, group] : space.layout.by_group(std::vector<Range>{{0, space.layout.elements()}}))
    found.emplace_back(range, group.decays);
  const int64_t h0 = 4 * block;
  EXPECT_EQ(found, (std::vector<std::pair<Range, bool>>{{{0, block}, true},
                                                        {{block, block + 16}, false},
                                                        {{block + 16, h0}, true},
                                                        {{h0, h0 + 16}, false},
                                                        {{h0 + 16, 7 * block}, true}}));
  EXPECT_EQ(space.layout.by_group(std::vector<Range>{{10, 20}, {h0, h0 + 1}}).size(), 2U);
}

TEST(ParameterSpace, GradientsLieInOneBufferWhetherBoundBeforeOrAfterBackward) {
  const std::vector<NamedTensor> model = small_model();
  ParameterSpace space(model);
  const auto backward_of_all = [&] {
    for (const Parameter& parameter : space.layout.parameters())
      if (!parameter.is_frozen) backward(sum(scale(parameter.tensor, 2.0)));
  };
  EXPECT_FALSE(model[1].tensor.grad());
  EXPECT_THROW(space.gradients.expect_present(), Error);
  backward_of_all();
  space.gradients.expect_present();
  const double elements = 16 + 1 + 2 * block + 3 + 100 + 5000;
  EXPECT_EQ(item(sum(space.gradients())), 2.0 * elements);
  backward_of_all();
  EXPECT_EQ(item(sum(space.gradients())), 2.0 * elements);
  EXPECT_EQ(gradient_norm(space), 2.0 * std::sqrt(elements));
  space.gradients.set_whole(false);
  EXPECT_THROW(model[1].tensor.grad(), Error);
  EXPECT_FALSE(model[3].tensor.grad()) << "a frozen parameter has no gradient";
}

TEST(ParameterSpace, WhatDoesNotFitTogetherIsNamed) {
  const auto problem = [](const std::vector<NamedTensor>& listed) -> std::string {
    try {
      const ParameterSpace space(listed);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(problem({{"a", leaf(1)}, {"a", leaf(1)}}).find("two parameters are called a"), std::string::npos);
  EXPECT_NE(problem({{"a", leaf(1)}, {"b", full({2}, 0.0, DType::f64)}}).find("b is f64"), std::string::npos);
  EXPECT_NE(problem({{"a", scale(leaf(1), 2.0)}}).find("a is not a leaf"), std::string::npos);
  EXPECT_EQ(ParameterSpace({}).layout.elements(), 0);
}

}  // namespace
}  // namespace lockstep
