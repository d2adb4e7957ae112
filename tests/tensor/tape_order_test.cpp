// SPDX-License-Identifier: Apache-2.0
// Checks when gradients become ready and when memory is released.
#include <algorithm>
#include <functional>
#include <gtest/gtest.h>

#include "lockstep/tensor/ops.h"
#include "support/gradient_check.h"

namespace lockstep::tape_order_test {
namespace {

using Events = std::vector<std::string>;

size_t place(const Events& events, const std::string& event) {
  return static_cast<size_t>(std::find(events.begin(), events.end(), event) - events.begin());
}

/// Returns the sum of the inputs as one operation. It records when its gradient runs.
Tensor noted_sum(Events& events, const std::string& event, const std::vector<Tensor>& inputs) {
  Tensor y = inputs[0].detach();
  {
    const NoGrad no_grad;
    for (size_t i = 1; i < inputs.size(); ++i) y = add(y, inputs[i]);
    if (inputs.size() == 1) y = scale(y, 1.0);
  }
  return record("noted_sum", y, inputs, [&events, event, count = inputs.size()](const Tensor& dy) {
    events.push_back(event);
    return Gradients(count, dy);
  });
}

Tensor noted_leaf(Events& events, const std::string& event) {
  Tensor x = full({3}, 1.0);
  x.set_requires_grad();
  leaf_gradient(x).ready = [&events, event] { events.push_back(event); };
  return x;
}

TEST(TapeOrder, OperationsRunNewestFirst) {
  Events events;
  const Tensor x = noted_leaf(events, "leaf");
  const Tensor a = noted_sum(events, "a", {x});
  const Tensor b = noted_sum(events, "b", {x});
  const Tensor c = noted_sum(events, "c", {b, a});
  const Tensor d = noted_sum(events, "d", {a, c, b});
  backward(sum(d));
  EXPECT_EQ(events, (Events{"d", "c", "b", "a", "leaf"}));
}

constexpr int layers = 6;
std::string weight(int layer) { return concat("weight ", layer); }
std::string layer_name(int layer) { return concat("layer ", layer); }

/// Returns whether a layer's gradient is ready while the layers before it still compute.
bool overlaps(const Events& events) {
  for (int layer = 1; layer < layers; ++layer)
    if (place(events, weight(layer)) > place(events, layer_name(layer - 1))) return false;
  return true;
}

/// A chain in which each layer uses its weight first and the previous layer's result second.
Events newest_first_events() {
  Events events;
  std::vector<Tensor> weights;
  for (int layer = 0; layer < layers; ++layer) weights.push_back(noted_leaf(events, weight(layer)));
  Tensor x = full({3}, 1.0);
  for (int layer = 0; layer < layers; ++layer)
    x = noted_sum(events, layer_name(layer), {weights[static_cast<size_t>(layer)], x});
  backward(sum(x));
  return events;
}

/// The chain in the reverse of a depth-first search's post-order, which is also a valid order.
Events depth_first_events() {
  Events events;
  const std::function<void(int)> visit = [&](int layer) {
    events.push_back(weight(layer));
    if (layer > 0) visit(layer - 1);
    events.push_back(layer_name(layer));
  };
  visit(layers - 1);
  std::reverse(events.begin(), events.end());
  return events;
}

TEST(TapeOrder, AWeightIsReadyBeforeTheLayersBelowItRun) {
  const Events events = newest_first_events();
  EXPECT_EQ(events.size(), 2U * layers);
  EXPECT_TRUE(overlaps(events));
  EXPECT_EQ(events.front(), layer_name(layers - 1));
  EXPECT_EQ(events.back(), weight(0));
}

TEST(TapeOrder, DepthFirstWouldKeepAllWeightsToTheEnd) {
  const Events events = depth_first_events();
  EXPECT_EQ(events.size(), 2U * layers);
  for (int layer = layers - 1; layer > 0; --layer)
    EXPECT_LT(place(events, layer_name(layer)), place(events, layer_name(layer - 1)));
  EXPECT_FALSE(overlaps(events));
}

TEST(TapeOrder, LinearsInAChainAreReadyLastToFirst) {
  Events events;
  std::vector<Tensor> weights;
  for (int layer = 0; layer < layers; ++layer) {
    weights.push_back(uniform_tensor({5, 5}, static_cast<uint32_t>(layer)).set_requires_grad());
    leaf_gradient(weights.back()).ready = [&events, layer] { events.push_back(weight(layer)); };
  }
  Tensor x = uniform_tensor({3, 5}, 9);
  for (const Tensor& w : weights) x = tanh(linear(x, w));
  backward(mean(x));
  Events last_to_first;
  for (int layer = layers - 1; layer >= 0; --layer) last_to_first.push_back(weight(layer));
  EXPECT_EQ(events, last_to_first);
}

int64_t bytes_in_use() { return memory_table().back().current_bytes; }

constexpr int64_t rows = 256, columns = 16;
constexpr int64_t activation_bytes = rows * columns * 8;

struct Chain {
  std::vector<Tensor> weights;
  Tensor input = uniform_tensor({rows, columns}, 100);

  Chain() {
    for (uint32_t layer = 0; layer < layers; ++layer)
      weights.push_back(uniform_tensor({columns, columns}, layer).set_requires_grad());
  }
  Tensor loss() const {
    Tensor x = input;
    for (const Tensor& w : weights) x = linear(x, w);
    return sum(x);
  }
};

TEST(TapeMemory, OnlyLeavesInputsAndGradientsStayAfterwards) {
  const Chain chain;
  backward(chain.loss());
  const int64_t resting = bytes_in_use();
  const Tensor loss = chain.loss();
  EXPECT_GE(bytes_in_use(), resting + (layers - 1) * activation_bytes);
  const int64_t scalar_bytes = 64;
  backward(loss);
  EXPECT_EQ(bytes_in_use(), resting + scalar_bytes) << "only the loss is still held";
  EXPECT_EQ(item(loss), item(loss.detach()));
}

// At layer l's hook, node l still holds its saved input. The nodes above it have released theirs.
TEST(TapeMemory, EachOperationFreesWhatItSavedAsItRuns) {
  const Chain chain;
  backward(chain.loss());
  std::vector<int64_t> in_use;
  for (const Tensor& w : chain.weights) leaf_gradient(w).ready = [&] { in_use.push_back(bytes_in_use()); };
  backward(chain.loss());
  ASSERT_EQ(in_use.size(), static_cast<size_t>(layers));
  for (size_t i = 2; i + 1 < in_use.size(); ++i) EXPECT_EQ(in_use[i], in_use[i - 1] - activation_bytes);
}

TEST(TapeMemory, AGradientIsAddedWhereItIsUnlessItIsASumOverUses) {
  const Tensor w = uniform_tensor({128, 128}, 1).set_requires_grad();
  leaf_gradient(w).accumulate = true;
  const auto loss_of = [&](int uses) {
    Tensor loss = sum(embedding(random_ids({2}, 128, 3), w));
    for (int use = 1; use < uses; ++use) loss = add(loss, sum(embedding(random_ids({2}, 128, 3), w)));
    return loss;
  };
  backward(loss_of(1));  // allocates the gradient
  for (const auto& [uses, label] : {std::pair(1, "one use"), {2, "two uses"}, {3, "three uses"}}) {
    const Tensor loss = loss_of(uses);
    const MemoryScope scope(label);
    backward(loss);
  }
  constexpr int64_t gradient = 128 * 128 * 4;
  for (const MemoryUse& use : memory_table())
    if (use.label.ends_with(" use") || use.label.ends_with(" uses")) {
      const bool is_sum = use.label != "one use";
      EXPECT_EQ(use.peak_bytes >= gradient, is_sum) << use.label;
      EXPECT_LT(use.peak_bytes, 5 * gradient / 2) << use.label << ", for any number of uses";
    }
}

TEST(TapeMemory, ALossThatIsDroppedTakesItsTapeAlong) {
  const Chain chain;
  const int64_t before = bytes_in_use();
  {
    const Tensor loss = chain.loss();
    EXPECT_GT(bytes_in_use(), before);
  }
  EXPECT_EQ(bytes_in_use(), before);
}

TEST(TapeMemory, WithoutRecordingIntermediatesGoAtOnce) {
  const Chain chain;
  const int64_t before = bytes_in_use();
  const NoGrad no_grad;
  const Tensor loss = chain.loss();
  EXPECT_EQ(bytes_in_use(), before + 64);
}

}  // namespace
}  // namespace lockstep::tape_order_test
