// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/comparison.h"

#include "kernels/broadcast_reference.h"
#include "kernels/expectations.h"
#include "kernels/function_reference.h"
#include "support/user_error.h"

namespace lockstep::testing {
namespace {

constexpr DType every_dtype[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32};

/// Compares K with `reference(a, b)` for arrays that are broadcast, for a number in the place of b, and for
/// three threads.
template <class K>
void check(const K& kernel, double (*reference)(double, double)) {
  for (const DType dtype : every_dtype)
    for (const auto& [of_a, of_b, of_y] : broadcast_shapes) {
      SCOPED_TRACE(concat(K::name, " ", of_a, " ", of_b, " ", dtype));
      Values a = few_numbers(of_a, dtype, 1), b = few_numbers(of_b, dtype, 2), y(of_y, dtype);
      K k = kernel;
      k.a = a.view(), k.b = b.view(), k.y = y.view();
      launch_on(1, k);
      for (int64_t i = 0; i < y.size(); ++i)
        expect_same_number(y[i],
                           reference(a[place_in_operand(of_a, of_y, i)], b[place_in_operand(of_b, of_y, i)]));
      Values again(of_y, dtype), with_number(of_a, dtype);
      k.y = again.view();
      launch_on(3, k);
      EXPECT_TRUE(again == y);
      k.b = OperandView(1.0, dtype), k.y = with_number.view();
      launch_on(1, k);
      for (int64_t i = 0; i < a.size(); ++i) expect_same_number(with_number[i], reference(a[i], 1.0));
    }
}

TEST(Comparison, MatchesReference) {
  check(Compare{.comparison = Comparison::less, .a = {}, .b = {}, .y = {}},
        [](double a, double b) { return a < b ? 1.0 : 0.0; });
  check(Compare{.comparison = Comparison::less_equal, .a = {}, .b = {}, .y = {}},
        [](double a, double b) { return a <= b ? 1.0 : 0.0; });
  check(Compare{.comparison = Comparison::equal, .a = {}, .b = {}, .y = {}},
        [](double a, double b) { return a == b ? 1.0 : 0.0; });
  check(Compare{.comparison = Comparison::not_equal, .a = {}, .b = {}, .y = {}},
        [](double a, double b) { return a != b ? 1.0 : 0.0; });
  check(Maximum{}, [](double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b); });
  check(Minimum{}, [](double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b); });
}

TEST(Comparison, WhereTakesThreeOperandsThatAreBroadcast) {
  for (const DType dtype : every_dtype) {
    Values mask = few_numbers({4, 1, 16}, dtype, 1), a = few_numbers({3, 1}, dtype, 2),
           b = few_numbers({16}, dtype, 3);
    Values y({4, 3, 16}, dtype), again({4, 3, 16}, dtype);
    launch_on(1, Where{.mask = mask.view(), .a = a.view(), .b = b.view(), .y = y.view()});
    for (int64_t i = 0; i < y.size(); ++i)
      expect_same_number(y[i], mask[i / 48 * 16 + i % 16] != 0.0 ? a[i / 16 % 3] : b[i % 16]);
    launch_on(3, Where{.mask = mask.view(), .a = a.view(), .b = b.view(), .y = again.view()});
    EXPECT_TRUE(again == y);
    Values numbers({4, 1, 16}, dtype);
    launch_on(1, Where{.mask = mask.view(), .a = {2.0, dtype}, .b = {-1.0, dtype}, .y = numbers.view()});
    for (int64_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], mask[i] != 0.0 ? 2.0 : -1.0);
  }
}

TEST(Comparison, MistakesNameTheDtypes) {
  Values mask({2}, DType::i32), a({2}), y({2});
  EXPECT_THROW(launch_on(1, Where{.mask = mask.view(), .a = a.view(), .b = a.view(), .y = y.view()}), Error);
  EXPECT_THROW(launch_on(1, Maximum{.a = a.view(), .b = mask.view(), .y = y.view()}), Error);
}

}  // namespace
}  // namespace lockstep::testing
