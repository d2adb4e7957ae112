// SPDX-License-Identifier: Apache-2.0
// Tapes of a million operations, which must not need a stack of their depth.
#include <functional>
#include <gtest/gtest.h>
#include <pthread.h>

#include "lockstep/core/error.h"
#include "lockstep/tensor/autograd.h"
#include "lockstep/tensor/checkpoint.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::long_tape_test {
namespace {

constexpr int million = 1'000'000;
constexpr size_t small_stack_bytes = size_t{256} << 10;

/// Runs the body on a thread whose stack holds a few thousand calls.
void with_small_stack(std::function<void()> body) {
  pthread_attr_t attributes;
  ASSERT_EQ(::pthread_attr_init(&attributes), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&attributes, small_stack_bytes), 0);
  pthread_t thread;
  const auto run = [](void* function) -> void* {
    (*static_cast<std::function<void()>*>(function))();
    return nullptr;
  };
  ASSERT_EQ(::pthread_create(&thread, &attributes, run, &body), 0);
  ::pthread_join(thread, nullptr);
  ::pthread_attr_destroy(&attributes);
}

Tensor leaf() { return full({1}, 1.0).set_requires_grad(); }

/// Returns y after an operation that takes no memory. Its gradient function holds x, as that of a product
/// does.
Tensor pass(const Tensor& x) {
  return record("pass", x.detach(), {x}, [x](const Tensor& dy) -> Gradients { return {dy}; });
}

TEST(LongTape, AChainThatIsNeverWalkedIsDropped) {
  with_small_stack([] {
    Tensor y = leaf();
    for (int i = 0; i < million; ++i) y = pass(y);
    y = {};
  });
}

TEST(LongTape, AnExceptionInTheForwardDropsIt) {
  with_small_stack([] {
    const auto forward = [](const Tensor& x) {
      Tensor y = x;
      for (int i = 0; i < 100'000; ++i) y = pass(y);
      expect(false, "the forward failed");
    };
    EXPECT_THROW(forward(leaf()), Error);
  });
}

// The first use of a shared result is below all of its later uses.
TEST(LongTape, SharedResultsAreDroppedOnce) {
  with_small_stack([] {
    const Tensor x = leaf();
    Tensor y = x, first;
    for (int i = 0; i < 30'000; ++i) {
      y = add(multiply(y, y), first ? add(first, x) : x);
      if (!first) first = y;
    }
    first = {};
    y = {};
  });
}

TEST(LongTape, AWideTapeIsDropped) {
  with_small_stack([] {
    std::vector<Tensor> inputs(100'000);
    for (Tensor& input : inputs) input = pass(leaf());
    Tensor sum = record("sum", zeros({1}), inputs,
                        [inputs](const Tensor& dy) { return Gradients(inputs.size(), dy); });
    inputs.clear();
    sum = {};
  });
}

TEST(LongTape, ABackwardThatFailsHalfwayDropsTheRest) {
  with_small_stack([] {
    const Tensor x = leaf();
    Tensor y = x;
    for (int i = 0; i < 100'000; ++i)
      y = i == 50'000 ? record("fails", y.detach(), {y},
                               [](const Tensor&) -> Gradients { throw Error("the gradient failed"); })
                      : pass(y);
    EXPECT_THROW(backward(y), Error);
    y = {};
  });
}

TEST(LongTape, RecomputedOperationsHaveAGradient) {
  with_small_stack([] {
    const Tensor x = leaf();
    Tensor y = x;
    for (int segment = 0; segment < 10; ++segment)
      y = checkpoint(
          [](const std::vector<Tensor>& inputs) {
            Tensor inside = inputs[0];
            for (int i = 0; i < 30'000; ++i) inside = pass(inside);
            return inside;
          },
          {y});
    backward(y);
    EXPECT_EQ(item(x.grad()), 1.0);
  });
}

}  // namespace
}  // namespace lockstep::long_tape_test
