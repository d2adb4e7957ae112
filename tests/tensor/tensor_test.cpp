// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/tensor.h"

#include <gtest/gtest.h>
#include <numeric>

#include "lockstep/core/dtype.h"
#include "lockstep/tensor/autograd.h"
#include "lockstep/tensor/create.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::tensor_test {
namespace {

/// Returns the numbers 0, 1, 2, ... in the given shape.
Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  std::iota(values.begin(), values.end(), 0.0f);
  return from_values(values, shape);
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

TEST(Tensor, CopiesAreHandlesToOneTensor) {
  Tensor a = counting({2, 3});
  const Tensor b = a;
  EXPECT_EQ(a.id(), b.id());
  a.set_requires_grad();
  EXPECT_TRUE(b.requires_grad());
  a.data<float>()[0] = 7;
  EXPECT_EQ(b.data<float>()[0], 7);
}

TEST(Tensor, ReshapeSharesMemoryAndInfersOneExtent) {
  const Tensor x = counting({2, 6});
  const Tensor y = x.reshape({3, -1, 2});
  EXPECT_EQ(y.shape(), (Shape{3, 2, 2}));
  EXPECT_EQ(y.view().data, x.view().data);
  EXPECT_EQ(x.reshape({-1}).shape(), (Shape{12}));
  expect_error("reshape: x is [2, 6], which has not the elements of [5, 2]", [&] { x.reshape({5, 2}); });
  expect_error("reshape: x is [2, 6], whose 12 elements do not fit an extent of -1", [&] {
    x.reshape({5, -1});
  });
  expect_error("do not fit an extent of -1", [&] { zeros({0}).reshape({0, -1}); });
  expect_error("reshape: ", [&] { x.reshape({-1, -1}); });
}

TEST(Tensor, SlicesAreRowsOfTheSameMemory) {
  const Tensor x = counting({4, 3});
  const Tensor rows = x.slice(1, 3);
  EXPECT_EQ(rows.shape(), (Shape{2, 3}));
  EXPECT_EQ(to_doubles(rows), (std::vector<double>{3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(to_doubles(rows.slice(1, 2)), (std::vector<double>{6, 7, 8}));
  rows.data<float>()[0] = -1;
  EXPECT_EQ(x.data<float>()[3], -1);
  EXPECT_EQ(x.slice(4, 4).size(), 0);
  expect_error("slice: x is [4, 3] and has no rows [3, 5)", [&] { x.slice(3, 5); });
  expect_error("has no rows [-1, 2)", [&] { x.slice(-1, 2); });
  expect_error("x is [] and has no rows [0, 0)", [&] { zeros({}).slice(0, 0); });
}

TEST(Tensor, MemoryOutlivesTheTensorItCameFrom) {
  const Tensor rows = counting({4, 3}).slice(2, 4);
  const Tensor other = full({4, 3}, 9);
  EXPECT_EQ(to_doubles(rows), (std::vector<double>{6, 7, 8, 9, 10, 11}));
}

TEST(Tensor, DetachLeavesTheTapeAndKeepsTheMemory) {
  Tensor x = counting({3});
  x.set_requires_grad();
  const Tensor y = scale(x, 2.0);
  EXPECT_TRUE(y.requires_grad());
  const Tensor off = y.detach();
  EXPECT_FALSE(off.requires_grad());
  EXPECT_EQ(off.view().data, y.view().data);
  EXPECT_NE(off.id(), y.id());
}

TEST(Tensor, WhatIsDeclaredIsMadeAtFirstUseAndOnce) {
  int fills = 0;
  const InitialValues counted{.fill =
                                  [&](const Tensor& part, int64_t first) {
                                    ++fills;
                                    for (int64_t i = 0; i < part.size(); ++i)
                                      part.data<float>()[i] = static_cast<float>(first + i);
                                  },
                              .name = "counted"};
  Tensor x = Tensor::declare({2, 3}, DType::f32, current_stream(), counted);
  x.set_requires_grad();
  EXPECT_EQ(x.size(), 6);
  EXPECT_EQ(fills, 0) << "the tensor has not been read yet";
  const Tensor other_handle = x, row = x.slice(1, 2), off = x.detach();
  EXPECT_EQ(to_doubles(row), (std::vector<double>{3, 4, 5}));
  EXPECT_EQ(to_doubles(other_handle), (std::vector<double>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(off.view().data, x.view().data);
  EXPECT_EQ(fills, 1);
  x.initialize({.fill = [](const Tensor& part, int64_t) { fill(part, 7.0); }, .name = "sevens"});
  EXPECT_EQ(to_doubles(row), (std::vector<double>{7, 7, 7})) << "the tensor already has memory";
  const Tensor later = Tensor::declare({2}, DType::f32, current_stream(), counted);
  later.initialize({.fill = [](const Tensor& part, int64_t) { fill(part, 2.0); }, .name = "twos"});
  EXPECT_EQ(fills, 1);
  EXPECT_EQ(to_doubles(later), (std::vector<double>{2, 2}));
}

TEST(Tensor, AdoptedMemoryKeepsItsOwner) {
  auto owner = std::make_shared<std::vector<float>>(std::vector<float>{1, 2, 3});
  const std::weak_ptr<std::vector<float>> watch = owner;
  std::shared_ptr<std::byte> data(owner, reinterpret_cast<std::byte*>(owner->data()));
  Tensor x(std::make_shared<Storage>(Storage{std::move(data), 12, current_stream()}), 4, {2}, DType::f32);
  owner.reset();
  EXPECT_EQ(to_doubles(x), (std::vector<double>{2, 3}));
  EXPECT_FALSE(watch.expired());
  x = Tensor();
  EXPECT_TRUE(watch.expired());
}

TEST(Tensor, AnEmptyHandleSaysSo) {
  const Tensor nothing;
  EXPECT_FALSE(nothing);
  EXPECT_FALSE(nothing.requires_grad());
  EXPECT_FALSE(nothing.view());
  EXPECT_FALSE(nothing.detach());
  expect_error("an empty tensor has no shape", [&] { nothing.shape(); });
  expect_error("an empty tensor has no dtype", [&] { nothing.dtype(); });
}

TEST(Tensor, ReadingUnderAnotherTypeIsAnError) {
  expect_error("the view holds f32, not f64", [] { counting({2}).data<double>(); });
}

TEST(Create, FillsAndConverts) {
  EXPECT_EQ(to_doubles(zeros({2, 2})), (std::vector<double>(4, 0.0)));
  EXPECT_EQ(to_doubles(full({3}, -2.5, DType::f64)), (std::vector<double>(3, -2.5)));
  EXPECT_EQ(to_doubles(full({2}, 7, DType::i32)), (std::vector<double>{7, 7}));
  EXPECT_EQ(item(full({1, 1}, 3, DType::bf16)), 3);
  const Tensor third = convert(full({1}, 1.0 / 3.0, DType::f64), DType::f32);
  EXPECT_EQ(item(third), 1.0f / 3.0f);
  EXPECT_EQ(item(convert(third, DType::bf16)), static_cast<float>(bfloat16(1.0f / 3.0f)));
  expect_error("3 values for the shape [2, 2]", [] { from_values<float>({1, 2, 3}, {2, 2}); });
  expect_error("one element", [] { item(zeros({2})); });
  expect_error("one element", [] { item(Tensor()); });
}

TEST(Create, CopyingNeedsEqualSizeAndDtype) {
  const Tensor target = zeros({3, 2});
  copy(counting({2, 3}), target);
  EXPECT_EQ(to_doubles(target), (std::vector<double>{0, 1, 2, 3, 4, 5}));
  EXPECT_THROW(copy(counting({5}), target), Error);
  EXPECT_THROW(copy(zeros({6}, DType::f64), target), Error);
}

TEST(Transpose, TakesAnyDtype) {
  const Tensor x = counting({3, 40});
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i32}) {
    const Tensor matrix = dtype == DType::i32 ? full({3, 40}, 7, dtype) : convert(x, dtype);
    const Tensor y = transpose(matrix);
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(y.shape(), (Shape{40, 3}));
    const std::vector<double> from = to_doubles(matrix), to = to_doubles(y);
    for (size_t i = 0; i < from.size(); ++i) EXPECT_EQ(to[i % 40 * 3 + i / 40], from[i]) << i;
    EXPECT_EQ(to_doubles(transpose(y)), from);
  }
  EXPECT_EQ(transpose(zeros({0, 4})).shape(), (Shape{4, 0}));
  expect_error("transpose: x is [2, 3] and has no dimension 2; it must be in [-2, 1]", [] {
    transpose(zeros({2, 3}), 2, 0);
  });
  expect_error("a scalar has none", [] { transpose(zeros({})); });
}

TEST(Create, RandomValuesAreAFunctionOfSeedAndPlace) {
  const auto draw = [](uint64_t seed, uint32_t stream_id) {
    const Tensor x = empty({1000});
    fill_normal(x, 0.0, 1.0, seed, stream_id);
    return to_doubles(x);
  };
  EXPECT_EQ(draw(1, 2), draw(1, 2));
  EXPECT_NE(draw(1, 2), draw(2, 2));
  EXPECT_NE(draw(1, 2), draw(1, 3));
}

TEST(Create, APartOfADrawHasTheValuesOfTheWhole) {
  for (const auto& fill : {fill_normal, fill_uniform}) {
    const Tensor whole = empty({103}), parts = empty({103});
    fill(whole, 0.0, 1.0, 1, 2, 0);
    fill(parts.slice(0, 50), 0.0, 1.0, 1, 2, 0);
    fill(parts.slice(50, 103), 0.0, 1.0, 1, 2, 50);
    EXPECT_EQ(to_doubles(parts), to_doubles(whole));
  }
}

}  // namespace
}  // namespace lockstep::tensor_test
