// SPDX-License-Identifier: Apache-2.0
// Compares a function that runs again in the backward with the same function without recomputation.
#include "lockstep/tensor/checkpoint.h"

#include "lockstep/tensor/ops.h"
#include "support/gradient_check.h"

namespace lockstep::checkpoint_test {
namespace {

using Tensors = std::vector<Tensor>;
using Function = std::function<Tensor(const Tensors&)>;
/// Runs a function directly or through checkpoint().
using Runner = std::function<Tensor(const Function&, const Tensors&)>;
/// Computes a scalar from leaves. Parts of it run through the runner.
using Model = std::function<Tensor(const Tensors& leaves, const Runner& run)>;

Tensor plainly(const Function& function, const Tensors& inputs) { return function(inputs); }

constexpr int64_t width = 24, vocabulary = 11;

/// Returns a table, two weights and a norm's weight, with values that round.
Tensors make_leaves() {
  Tensors leaves;
  for (const Shape& shape :
       {Shape{vocabulary, width}, Shape{width, width}, Shape{width, width}, Shape{width}})
    leaves.push_back(uniform_tensor(shape, static_cast<uint32_t>(leaves.size()), DType::f32));
  for (Tensor& leaf : leaves) leaf.set_requires_grad();
  return leaves;
}

Tensor ids() { return random_ids({3, 17}, vocabulary, 7); }

struct Outcome {
  std::vector<Tensor> bits;   ///< the loss and all gradients that exist
  std::vector<size_t> ready;  ///< leaves in the order of their hooks
};

/// Runs two backwards. The second one overwrites or accumulates.
Outcome outcome_of(const Model& model, const Runner& run, bool accumulate, double seed) {
  const Tensors leaves = make_leaves();
  Outcome outcome;
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t i = 0; i < leaves.size(); ++i) {
      leaf_gradient(leaves[i]).accumulate = accumulate;
      leaf_gradient(leaves[i]).ready = [&, i] {
        outcome.ready.push_back(i);
        outcome.bits.push_back(scale(leaves[i].grad(), 1.0));
      };
    }
    const Tensor loss = model(leaves, run);
    outcome.bits.push_back(loss.detach());
    backward(loss, seed);
    for (const Tensor& leaf : leaves)
      if (leaf.grad()) outcome.bits.push_back(scale(leaf.grad(), 1.0));
  }
  return outcome;
}

void expect_same(const Model& model) {
  for (const bool accumulate : {false, true})
    for (const double seed : {1.0, 0.3}) {
      const Outcome expected = outcome_of(model, plainly, accumulate, seed);
      const Outcome actual = outcome_of(model, checkpoint, accumulate, seed);
      EXPECT_EQ(actual.ready, expected.ready);
      ASSERT_EQ(actual.bits.size(), expected.bits.size());
      for (size_t i = 0; i < actual.bits.size(); ++i)
        EXPECT_TRUE(has_same_bits(actual.bits[i], expected.bits[i])) << i;
    }
}

Tensor loss_of(const Tensor& x) { return mean(multiply(x, x)); }

TEST(Checkpoint, AWeightInsideAndOutside) {
  expect_same([](const Tensors& leaves, const Runner& run) {
    const Tensor& w = leaves[1];
    const Tensor x = tanh(linear(embedding(ids(), leaves[0]), w));
    const Tensor y =
        run([&](const Tensors& in) { return tanh(linear(gelu(linear(in[0], w)), leaves[2])); }, {x});
    return loss_of(linear(y, w));
  });
}

TEST(Checkpoint, TwoSegmentsShareAWeight) {
  expect_same([](const Tensors& leaves, const Runner& run) {
    const Function layer = [w = leaves[1]](const Tensors& in) { return tanh(linear(in[0], w)); };
    return loss_of(run(layer, {run(layer, {embedding(ids(), leaves[0])})}));
  });
}

TEST(Checkpoint, SegmentsWithinSegments) {
  expect_same([](const Tensors& leaves, const Runner& run) {
    const Function inner = [&](const Tensors& in) { return tanh(linear(in[0], leaves[1])); };
    const Function outer = [&, inner](const Tensors& in) {
      const Tensor x = gelu(linear(in[0], leaves[2]));
      return add(in[0], linear(run(inner, {run(inner, {x})}), leaves[1]));
    };
    return loss_of(run(outer, {run(outer, {embedding(ids(), leaves[0])})}));
  });
}

TEST(Checkpoint, ATiedTable) {
  expect_same([](const Tensors& leaves, const Runner& run) {
    const Tensor& table = leaves[0];
    const Tensor x =
        run([&](const Tensors& in) { return gelu(linear(add(in[0], embedding(ids(), table)), leaves[1])); },
            {embedding(ids(), table)});
    return linear_cross_entropy(x, table, ids());
  });
}

/// Norms add the gradient that their stream has received in the same pass, with one rounding.
TEST(Checkpoint, AResidualStreamStaysFused) {
  expect_same([](const Tensors& leaves, const Runner& run) {
    const Function block = [&](const Tensors& in) {
      const Tensor normed = layer_norm(in[0], leaves[3], {});
      const auto [sum, norm] = add_layer_norm(in[0], gelu(linear(normed, leaves[1])), leaves[3], {});
      return linear(norm, leaves[2], {}, sum);
    };
    const Tensor x = embedding(ids(), leaves[0]);
    const Tensor y = run(block, {x});
    return loss_of(add(x, run(block, {add(x, y)})));
  });
}

TEST(Checkpoint, DropoutDrawsTheSameAgain) {
  expect_same([](const Tensors& leaves, const Runner& run) {
    const auto layer = [&](uint32_t site) -> Function {
      return [&, site](const Tensors& in) {
        const RandomKey key{.seed = 3, .step = 5, .sample = 2, .site = site};
        return add(in[0], dropout(linear(in[0], leaves[1]), 0.4, key));
      };
    };
    return loss_of(run(layer(1), {run(layer(0), {embedding(ids(), leaves[0])})}));
  });
}

TEST(Checkpoint, TheLossMayBeInside) {
  expect_same([](const Tensors& leaves, const Runner& run) {
    return run([&](const Tensors& in) { return linear_cross_entropy(tanh(in[0]), leaves[0], ids()); },
               {linear(embedding(ids(), leaves[0]), leaves[1])});
  });
}

TEST(Checkpoint, ResultsMayBeCapturedAndLeavesPassed) {
  expect_same([](const Tensors& leaves, const Runner& run) {
    const Tensor x = embedding(ids(), leaves[0]), aside = tanh(linear(x, leaves[2]));
    const Tensor y =
        run([aside](const Tensors& in) { return multiply(aside, linear(in[0], in[1])); }, {x, leaves[1]});
    return loss_of(add(aside, y));
  });
}

TEST(Checkpoint, WhatIsNotRecordedJustRuns) {
  int runs = 0;
  const Function twice = [&](const Tensors& in) { return ++runs, scale(in[0], 2); };
  const Tensor x = uniform_tensor({3}, 1).set_requires_grad();
  EXPECT_FALSE(checkpoint(twice, {x.detach()}).requires_grad());
  {
    const NoGrad no_grad;
    EXPECT_FALSE(checkpoint(twice, {x}).requires_grad());
  }
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(checkpoint([](const Tensors& in) { return in[0]; }, {x}).id(), x.id());
  const Tensor y = checkpoint(twice, {x});
  EXPECT_EQ(runs, 3);
  backward(sum(y));
  EXPECT_EQ(runs, 4);
}

TEST(Checkpoint, AWeightFrozenAfterwardsHasNoGradient) {
  const Tensor x = uniform_tensor({3}, 1).set_requires_grad();
  Tensor w = uniform_tensor({3}, 2).set_requires_grad();
  const Tensor y = checkpoint([&](const Tensors& in) { return multiply(in[0], w); }, {x});
  const Tensor z = checkpoint([&](const Tensors&) { return scale(w, 2); }, {});
  w.set_requires_grad(false);
  backward(sum(add(y, z)));
  EXPECT_TRUE(has_same_bits(x.grad(), w));
}

TEST(Checkpoint, ASecondRunThatReadsOtherLeavesIsAnError) {
  const Tensor a = uniform_tensor({3}, 1).set_requires_grad(), b = uniform_tensor({3}, 2).set_requires_grad();
  bool is_first = true;
  const Tensor y =
      checkpoint([&](const Tensors&) { return scale(std::exchange(is_first, false) ? a : b, 2); }, {});
  try {
    backward(sum(y));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("checkpoint: recomputing its function read other tensors"),
              std::string::npos)
        << error.what();
  }
}

TEST(Checkpoint, ASequenceIsCutIntoRunsOfNearlyEqualLength) {
  const Tensor x = uniform_tensor({3}, 1).set_requires_grad();
  std::vector<int> order;
  std::vector<std::function<Tensor(const Tensor&)>> functions;
  for (int i = 0; i < 5; ++i)
    functions.push_back([&order, i](const Tensor& in) { return order.push_back(i), scale(in, i + 2); });
  const auto run = [&](int64_t segments) {
    order.clear();
    const Tensor y = checkpoint_sequential(functions, segments, x);
    EXPECT_TRUE(has_same_bits(y, scale(x, 720)));
    order.clear();
    backward(sum(y));
    EXPECT_EQ(to_doubles(x.grad()), std::vector<double>(3, 720));
    return order;
  };
  EXPECT_EQ(run(1), std::vector<int>());
  EXPECT_EQ(run(2), (std::vector<int>{0, 1}));
  EXPECT_EQ(run(3), (std::vector<int>{1, 2, 0}));
  EXPECT_EQ(run(5), (std::vector<int>{3, 2, 1, 0}));
  for (const int64_t segments : {0, 6}) EXPECT_THROW(checkpoint_sequential(functions, segments, x), Error);
}

TEST(Checkpoint, OnlyInputsAreKept) {
  const auto bytes_in_use = [] { return memory_table().back().current_bytes; };
  const Tensor w = uniform_tensor({16, 16}, 1).set_requires_grad();
  const Tensor x = uniform_tensor({256, 16}, 2);
  constexpr int64_t activation_bytes = 256 * 16 * 8;
  const Function layers = [&](const Tensors& in) {
    Tensor y = in[0];
    for (int layer = 0; layer < 5; ++layer) y = tanh(linear(y, w));
    return y;
  };
  backward(sum(layers({x})));
  const int64_t before = bytes_in_use();
  Tensor y = x;
  for (int segment = 0; segment < 3; ++segment) y = checkpoint(layers, {y});
  EXPECT_EQ(bytes_in_use(), before + 3 * activation_bytes);
  backward(sum(std::exchange(y, {})));
  EXPECT_EQ(bytes_in_use(), before);
}

}  // namespace
}  // namespace lockstep::checkpoint_test
