// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/autograd.h"

#include <gtest/gtest.h>

#include "lockstep/tensor/ops.h"
#include "support/gradient_check.h"

namespace lockstep::autograd_test {
namespace {

using Values = std::vector<double>;

Tensor leaf(const Values& values) {
  Tensor x = from_values(values, {std::ssize(values)});
  x.set_requires_grad();
  return x;
}

/// Records the leaf's gradient each time its hook is called.
std::shared_ptr<std::vector<Values>> watch(const Tensor& x) {
  auto seen = std::make_shared<std::vector<Values>>();
  LeafGradient& gradient = leaf_gradient(x);
  gradient.ready = [&gradient, seen] { seen->push_back(to_doubles(gradient.buffer)); };
  return seen;
}

/// Fails unless the call throws an Error whose message contains `part`.
template <class Call>
void expect_error(const std::string& part, Call call) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown; expected: " << part;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Autograd, ALeafIsReadyOnceAfterItsLastUse) {
  const Tensor x = leaf({2, 3});
  const auto seen = watch(x);
  const Tensor square = multiply(x, x);
  backward(sum(add(multiply(square, x), scale(x, 5))));
  // 3 x^2 + 5
  ASSERT_EQ(seen->size(), 1U);
  EXPECT_EQ(seen->front(), (Values{17, 32}));
  EXPECT_EQ(to_doubles(x.grad()), (Values{17, 32}));
}

TEST(Autograd, BothArgumentsOfOneOperationAreTwoUses) {
  const Tensor x = leaf({2, 3});
  const auto seen = watch(x);
  backward(sum(add(x, x)));
  ASSERT_EQ(seen->size(), 1U);
  EXPECT_EQ(seen->front(), (Values{2, 2}));
  backward(sum(multiply(x, x)));
  ASSERT_EQ(seen->size(), 2U);
  EXPECT_EQ(seen->back(), (Values{4, 6}));
  backward(sum(subtract(x, x)));
  ASSERT_EQ(seen->size(), 3U);
  EXPECT_EQ(seen->back(), (Values{0, 0}));
}

TEST(Autograd, ALeafThatTheLossDoesNotUseIsLeftAlone) {
  const Tensor x = leaf({1}), unused = leaf({1});
  const auto seen = watch(unused);
  const Tensor aside = scale(unused, 2);
  backward(sum(scale(x, 3)));
  EXPECT_TRUE(seen->empty());
  EXPECT_FALSE(unused.grad());
  EXPECT_TRUE(aside.requires_grad());
}

TEST(Autograd, EachBackwardOverwritesUnlessToldToAccumulate) {
  const Tensor x = leaf({2});
  backward(sum(scale(x, 3)));
  backward(sum(scale(x, 4)));
  EXPECT_EQ(to_doubles(x.grad()), (Values{4}));
  leaf_gradient(x).accumulate = true;
  backward(sum(scale(x, 5)));
  backward(sum(multiply(x, x)));
  EXPECT_EQ(to_doubles(x.grad()), (Values{13}));
}

// The gradient's memory held NaN before. Adding to that content would show.
TEST(Autograd, TheFirstAccumulationStartsFromNothing) {
  const Tensor x = leaf({2});
  leaf_gradient(x).accumulate = true;
  std::vector<Tensor> spoiled;
  for (int i = 0; i < 8; ++i) spoiled.push_back(full({1}, std::nan(""), DType::f64));
  spoiled.clear();
  backward(sum(scale(x, 5)));
  EXPECT_EQ(to_doubles(x.grad()), (Values{5}));
}

TEST(Autograd, AGradientGoesToTheBufferThatWasGiven) {
  const Tensor x = leaf({1, 2, 3});
  const Tensor bucket = full({5}, -1, DType::f64);
  leaf_gradient(x).buffer = bucket.slice(1, 4);
  backward(sum(multiply(x, x)));
  EXPECT_EQ(to_doubles(bucket), (Values{-1, 2, 4, 6, -1}));
}

TEST(Autograd, TheSeedScalesAllGradients) {
  const Tensor x = leaf({1, 2});
  backward(sum(multiply(x, x)), 0.25);
  EXPECT_EQ(to_doubles(x.grad()), (Values{0.5, 1}));
}

TEST(Autograd, AWalkStartsFromAnyTensorWithItsGradient) {
  const Tensor x = leaf({1, 2});
  const Tensor dy = from_values(Values{3, -1}, {2});
  backward(add(multiply(x, x), scale(x, 2)), dy);
  EXPECT_EQ(to_doubles(x.grad()), (Values{12, -6}));
  EXPECT_EQ(to_doubles(dy), (Values{3, -1}));
  backward(sum(multiply(x, x)), full({}, 0.25, DType::f64));
  EXPECT_EQ(to_doubles(x.grad()), (Values{0.5, 1}));
}

// A gradient function may walk its own tape. The outer walk continues unharmed.
TEST(Autograd, AWalkWithinAWalk) {
  const Tensor x = leaf({2, 3}), inner = leaf({5, 7});
  const Tensor y =
      record("walks", scale(x.detach(), 1), {x}, [&](const Tensor& dy, GradientContext& context) {
        const Tensor loss = [&] {
          const EnableGrad enable_grad;
          return sum(multiply(inner, inner));
        }();
        backward(loss, 0.5);
        EXPECT_FALSE(context.starting_gradient());
        const Tensor carried = context.take_gradient(0);
        EXPECT_FALSE(carried);
        return Gradients{dy};
      });
  backward(sum(add(y, x)));
  EXPECT_EQ(to_doubles(inner.grad()), (Values{5, 7}));
  EXPECT_EQ(to_doubles(x.grad()), (Values{2, 2}));
}

TEST(Autograd, ResidualsAddUp) {
  const Tensor x = leaf({2, 3});
  const Tensor y = add(x, scale(x, 10));
  const Tensor z = add(y, multiply(y, y));
  backward(sum(z));
  // d = 11 (1 + 2 * 11 x)
  EXPECT_EQ(to_doubles(x.grad()), (Values{11 * 45, 11 * 67}));
}

// An add passes one tensor to both its inputs. `busy` receives more gradients while `waiting` still holds
// this tensor.
TEST(Autograd, AGradientThatTwoHoldIsNotAddedTo) {
  const Tensor x = leaf({1, 2});
  const Tensor waiting = scale(x, 2), busy = scale(x, 5), more = scale(busy, 3);
  backward(sum(add(add(waiting, busy), more)));
  EXPECT_EQ(to_doubles(x.grad()), (Values(2, 2 + 5 + 15)));
}

// `waiting` and `busy` hold different views of one memory. `busy` receives more gradients.
TEST(Autograd, MemoryThatTwoGradientsViewIsNotAddedTo) {
  const Tensor x = leaf({1, 2, 3, 4});
  const Tensor waiting = scale(x.reshape({2, 2}), 2), busy = scale(x, 5), more = scale(busy, 3);
  backward(sum(add(add(waiting, busy.reshape({2, 2})).reshape({4}), more)));
  EXPECT_EQ(to_doubles(x.grad()), (Values(4, 2 + 5 + 15)));
}

TEST(Autograd, DiamondsWithinDiamonds) {
  const Tensor x = leaf({1.5});
  Tensor y = x;
  for (int i = 0; i < 20; ++i) y = add(y, y);
  backward(y.reshape(Shape{}));
  EXPECT_EQ(to_doubles(x.grad()), (Values{std::ldexp(1.0, 20)}));
}

TEST(Autograd, NothingIsRecordedUnderNoGrad) {
  const Tensor x = leaf({2});
  {
    const NoGrad outer;
    { const NoGrad inner; }
    EXPECT_FALSE(scale(x, 2).requires_grad());
    EXPECT_FALSE(is_recorded({x}));
  }
  {
    const NoGrad outer;
    const EnableGrad again;
    EXPECT_TRUE(scale(x, 2).requires_grad());
  }
  EXPECT_TRUE(scale(x, 2).requires_grad());
  EXPECT_FALSE(scale(x.detach(), 2).requires_grad());
}

TEST(Autograd, ALossIsWalkedOnce) {
  const Tensor x = leaf({2});
  const Tensor shared = multiply(x, x);
  const Tensor loss = sum(shared), other = sum(scale(shared, 2));
  backward(loss);
  expect_error("was already computed", [&] { backward(loss); });
  expect_error("the gradient of multiply was already computed", [&] { backward(other); });
}

TEST(Autograd, BackwardStartsFromAScalarOnTheTape) {
  const Tensor x = leaf({1, 2});
  expect_error("starts from a scalar", [&] { backward(scale(x, 2)); });
  expect_error("starts from a scalar", [] { backward(Tensor()); });
  expect_error("its shape and dtype", [&] { backward(scale(x, 2), zeros({3}, DType::f64)); });
  expect_error("its shape and dtype", [&] { backward(scale(x, 2), zeros({2})); });
  expect_error("not on the tape", [] { backward(zeros({})); });
  expect_error("not a leaf", [&] { leaf_gradient(scale(x, 2)); });
  expect_error("not a leaf", [] { leaf_gradient(zeros({2})); });
  expect_error("only a leaf", [&] { scale(x, 2).set_requires_grad(); });
}

TEST(Autograd, GradientsThatDoNotMatchTheirInputsAreErrors) {
  const Tensor x = leaf({1, 2});
  const auto custom = [&](Gradients gradients) {
    return sum(record("custom", zeros({2}, DType::f64), {x, Tensor()},
                      [gradients](const Tensor&) { return gradients; }));
  };
  const Tensor fits = zeros({2}, DType::f64);
  EXPECT_NO_THROW(backward(custom({fits, Tensor()})));
  expect_error("custom has 2 inputs and returned 1 gradients", [&] { backward(custom({fits})); });
  expect_error("custom: gradient 0 is [3], its input is [2]", [&] {
    backward(custom({zeros({3}, DType::f64), Tensor()}));
  });
  EXPECT_THROW(backward(custom({zeros({2}, DType::f32), Tensor()})), Error);
}

TEST(Autograd, ASliceHandsItsGradientToItsRows) {
  Tensor x = from_values(std::vector<float>{1, 2, 3, 4, 5, 6}, {3, 2});
  x.set_requires_grad();
  const Tensor middle = x.slice(1, 2);
  backward(sum(add(multiply(middle, middle), x.slice(2, 3))));
  EXPECT_EQ(to_doubles(x.grad()), (std::vector<double>{0, 0, 6, 8, 1, 1}));
}

}  // namespace
}  // namespace lockstep::autograd_test
