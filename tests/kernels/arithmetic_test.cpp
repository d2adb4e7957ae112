// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/arithmetic.h"

#include "kernels/broadcast_reference.h"
#include "kernels/expectations.h"
#include "support/user_error.h"

namespace lockstep::testing {
namespace {

using Reference = double (*)(double, double);

/// Compares the kernel K{a, b, y} with `reference` for every dtype and several sizes, in place and on three
/// threads. The result is rounded once in the compute type and once to storage. Products reach down to f16's
/// subnormals.
template <class K>
void check_equal_shapes(Reference reference) {
  for (const DType dtype : float_types)
    for (const int64_t size : {1, 7, 513, 40000}) {
      Values a = Values::uniform({size}, dtype, 1), b = Values::uniform({size}, dtype, 2, 0.25, 2.0);
      Values y({size}, dtype);
      launch_on(1, K{a.view(), b.view(), y.view()});
      expect_close(
          y, [&](int64_t i) { return reference(a[i], b[i]); }, epsilon_of(dtype), 0x1p-24);
      launch_on(3, K{a.view(), b.view(), a.view()});
      EXPECT_TRUE(a == y);
    }
}

template <class K>
void check_broadcasting(Reference reference) {
  for (const DType dtype : float_types)
    for (const auto& [of_a, of_b, of_y] : broadcast_shapes) {
      SCOPED_TRACE(concat(K::name, " ", of_a, " ", of_b, " ", dtype));
      Values a = Values::uniform(of_a, dtype, 1), b = Values::uniform(of_b, dtype, 2, 0.25, 2.0);
      Values y(of_y, dtype), again(of_y, dtype);
      launch_on(1, K{a.view(), b.view(), y.view()});
      expect_close(
          y,
          [&, &shape_a = of_a, &shape_b = of_b, &shape = of_y](int64_t i) {
            return reference(a[place_in_operand(shape_a, shape, i)], b[place_in_operand(shape_b, shape, i)]);
          },
          epsilon_of(dtype), 0x1p-24);
      launch_on(3, K{a.view(), b.view(), again.view()});
      EXPECT_TRUE(again == y);
      if (of_a != of_y) continue;
      launch_on(3, K{a.view(), b.view(), a.view()});
      EXPECT_TRUE(a == y);
    }
}

TEST(Arithmetic, MatchesReferenceForEqualShapes) {
  check_equal_shapes<Add>([](double a, double b) { return a + b; });
  check_equal_shapes<Subtract>([](double a, double b) { return a - b; });
  check_equal_shapes<Multiply>([](double a, double b) { return a * b; });
  check_equal_shapes<Divide>([](double a, double b) { return a / b; });
}

TEST(Arithmetic, RepeatsWhatIsSmaller) {
  check_broadcasting<Add>([](double a, double b) { return a + b; });
  check_broadcasting<Subtract>([](double a, double b) { return a - b; });
  check_broadcasting<Multiply>([](double a, double b) { return a * b; });
  check_broadcasting<Divide>([](double a, double b) { return a / b; });
}

TEST(Arithmetic, DividesByZeroAsIeee754Does) {
  Values a({3}), b({}), y({3});
  a.set(0, 1.0);
  a.set(1, -1.0);
  launch_on(1, Divide{a.view(), b.view(), y.view()});
  EXPECT_EQ(y[0], INFINITY);
  EXPECT_EQ(y[1], -INFINITY);
  EXPECT_TRUE(std::isnan(y[2]));
}

TEST(Arithmetic, MistakesNameBothShapes) {
  Values a({2, 3}), b({2, 4}), y({2, 3}), row({3}), wide({3}, DType::f64);
  const auto message = [](const auto& kernel) {
    try {
      launch_on(1, kernel);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  expect_contains(message(Add{a.view(), b.view(), y.view()}),
                  {"add: a is [2, 3], b is [2, 4]; dimension -1 is 3 and 4"});
  expect_contains(message(Divide{a.view(), row.view(), b.view()}),
                  {"divide: a is [2, 3], b is [3], which makes [2, 3], but y is [2, 4]"});
  expect_contains(message(Multiply{a.view(), wide.view(), y.view()}), {"a is f32, b is f64"});
}

TEST(BroadcastPlan, JoinsDimensionsThatBothGoThroughAsThroughOne) {
  EXPECT_EQ(plan_broadcast<2>({Shape{2, 3, 4}, Shape{2, 3, 4}}, {2, 3, 4}).rank, 1);
  EXPECT_EQ(plan_broadcast<2>({Shape{2, 3, 4}, Shape{}}, {2, 3, 4}).rank, 1);
  EXPECT_EQ(plan_broadcast<2>({Shape{2, 3, 4}, Shape{3, 4}}, {2, 3, 4}).rank, 2);
  EXPECT_EQ(plan_broadcast<2>({Shape{2, 1, 4}, Shape{3, 1}}, {2, 3, 4}).rank, 3);
  EXPECT_EQ(plan_broadcast<2>({Shape{1, 3, 1, 4}, Shape{1, 3, 1, 4}}, {1, 3, 1, 4}).rank, 1);
  EXPECT_EQ(plan_broadcast<2>({Shape{5, 3, 1, 4}, Shape{3, 1, 4}}, {5, 3, 1, 4}).extents[0], 12);
}

}  // namespace
}  // namespace lockstep::testing
