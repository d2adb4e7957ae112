// SPDX-License-Identifier: Apache-2.0
// Functions, comparisons, extremes and copies of rows on a GPU. All but the logistic function have the bits
// of the CPU.
#include "kernels/broadcast_reference.h"
#include "kernels/cuda/on_gpu.h"
#include "kernels/function_reference.h"
#include "lockstep/kernels/comparison.h"
#include "lockstep/kernels/copy_rows.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/power.h"
#include "lockstep/kernels/sigmoid.h"

namespace lockstep::testing {
namespace {

constexpr DType storage_types[] = {DType::f32, DType::bf16, DType::f16};
constexpr DType types_with_ids[] = {DType::f32, DType::bf16, DType::f16, DType::i32};

/// Expects equal numbers, or NaN in both.
void expect_equal(const Values& actual, const Values& expected) {
  for (int64_t i = 0; i < expected.size(); ++i) expect_same_number(actual[i], expected[i]);
}

/// Checks a kernel with the fields a, b and y, also for numbers in the places of a and b.
template <class K>
void check_pair(const K& rest, const BroadcastShapes& shapes, Values a, Values b, DType dtype) {
  SCOPED_TRACE(concat(K::name, " ", shapes.a, " ", shapes.b, " ", dtype));
  const auto check = [&](const Shape& shape, auto with_operands) {
    Values y(shape, dtype);
    launch_on(1, with_operands(rest, OperandView(a.view()), OperandView(b.view()), y.view()));
    for_each_schedule([&] {
      for (const int64_t shift : {0, 1}) {
        OnGpu on_a(a, shift), on_b(b, shift), on_y = OnGpu::poisoned(shape, dtype, shift);
        launch(gpu_stream(),
               with_operands(rest, OperandView(on_a.view()), OperandView(on_b.view()), on_y.view()));
        expect_equal(on_y.values(), y);
      }
    });
  };
  check(shapes.y, [](K k, const OperandView& of_a, const OperandView& of_b, const View& y) {
    return k.a = of_a, k.b = of_b, k.y = y, k;
  });
  check(shapes.a, [dtype](K k, const OperandView& of_a, const OperandView&, const View& y) {
    return k.a = of_a, k.b = OperandView(2.0, dtype), k.y = y, k;
  });
  check(shapes.b, [dtype](K k, const OperandView&, const OperandView& of_b, const View& y) {
    return k.a = OperandView(1.5, dtype), k.b = of_b, k.y = y, k;
  });
}

std::vector<BroadcastShapes> all_shapes() {
  std::vector<BroadcastShapes> shapes = broadcast_shapes;
  for (const int64_t size : {1, 7, 4096}) shapes.push_back({{size}, {size}, {size}});
  return shapes;
}

TEST(ComparisonOnGpu, HasTheValuesOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : types_with_ids)
    for (const BroadcastShapes& shapes : all_shapes()) {
      const Values a = few_numbers(shapes.a, dtype, 1), b = few_numbers(shapes.b, dtype, 2);
      for (const Comparison comparison :
           {Comparison::less, Comparison::less_equal, Comparison::equal, Comparison::not_equal})
        check_pair(Compare{.comparison = comparison, .a = {}, .b = {}, .y = {}}, shapes, a, b, dtype);
      check_pair(Maximum{}, shapes, a, b, dtype);
      check_pair(Minimum{}, shapes, a, b, dtype);
    }
}

TEST(PowerOnGpu, HasTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : storage_types)
    for (const BroadcastShapes& shapes : all_shapes())
      check_pair(Power{}, shapes, Values::uniform(shapes.a, dtype, 1, -4, 4), few_numbers(shapes.b, dtype, 2),
                 dtype);
}

TEST(WhereOnGpu, HasTheValuesOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : types_with_ids)
    for (const bool is_whole : {true, false}) {
      const Shape whole{4, 3, 16};
      Values mask = few_numbers(is_whole ? whole : Shape{4, 1, 16}, dtype, 1);
      Values a = few_numbers(is_whole ? whole : Shape{3, 1}, dtype, 2), b = few_numbers(whole, dtype, 3);
      Values y(whole, dtype);
      const auto kernel = [&](const View& m, const OperandView& of_a, const OperandView& of_b,
                              const View& out) { return Where{.mask = m, .a = of_a, .b = of_b, .y = out}; };
      launch_on(1, kernel(mask.view(), a.view(), b.view(), y.view()));
      for_each_schedule([&] {
        OnGpu on_mask(mask), on_a(a), on_b(b), on_y = OnGpu::poisoned(whole, dtype);
        launch(gpu_stream(), kernel(on_mask.view(), on_a.view(), on_b.view(), on_y.view()));
        expect_equal(on_y.values(), y);
      });
    }
}

TEST(RootsOnGpu, HaveTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  const auto check = []<class K>(K, DType dtype, int64_t size) {
    Values x = Values::uniform({size}, dtype, 1, -0.5, 9.0), y({size}, dtype);
    launch_on(1, K{x.view(), y.view()});
    OnGpu on_x(x), on_y = OnGpu::poisoned({size}, dtype);
    launch(gpu_stream(), K{on_x.view(), on_y.view()});
    expect_equal(on_y.values(), y);
  };
  for (const DType dtype : storage_types)
    for (const int64_t size : {1, 7, 4096, 9003}) {
      check(Sqrt{}, dtype, size);
      check(Rsqrt{}, dtype, size);
    }
}

// The exponential errs by 2^-22 (1 + |x|), and where that is large the sigmoid is small.
TEST(SigmoidOnGpu, MatchesReference) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : storage_types)
    for (const int64_t size : {1, 7, 4096, 9003}) {
      Values x = Values::uniform({size}, dtype, 1, -9.0, 9.0), dy = Values::uniform({size}, dtype, 2);
      for_each_schedule([&] {
        OnGpu on_x(x), on_dy(dy), y = OnGpu::poisoned({size}, dtype), dx = OnGpu::poisoned({size}, dtype);
        OnGpu silu = OnGpu::poisoned({size}, dtype), silu_dx = OnGpu::poisoned({size}, dtype);
        launch(gpu_stream(), SigmoidForward{.x = on_x.view(), .y = y.view()});
        launch(gpu_stream(), SigmoidBackward{.y = y.view(), .dy = on_dy.view(), .dx = dx.view()});
        launch(gpu_stream(), SiluForward{.x = on_x.view(), .y = silu.view()});
        launch(gpu_stream(), SiluBackward{.x = on_x.view(), .dy = on_dy.view(), .dx = silu_dx.view()});
        const auto near = [&](double actual, double expected, double scale) {
          ASSERT_NEAR(actual, expected, (epsilon_of(dtype) + 0x1p-19) * scale + 0x1p-24);
        };
        for (int64_t i = 0; i < size; ++i) {
          const double s = 1.0 / (1.0 + std::exp(-x[i])), stored = y.values()[i];
          near(stored, s, s);
          near(dx.values()[i], dy[i] * stored * (1.0 - stored), std::fabs(dy[i]));
          near(silu.values()[i], x[i] * s, std::fabs(x[i] * s));
          near(silu_dx.values()[i], dy[i] * s * (1.0 + x[i] * (1.0 - s)), 2 * std::fabs(dy[i]));
        }
      });
    }
}

TEST(ExtremeOnGpu, FindsThePlacesOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : types_with_ids)
    for (const Shape& shape : extreme_shapes) {
      const int64_t outer = shape[0], count = shape[1], inner = shape[2];
      for (const Extreme extreme : {Extreme::largest, Extreme::smallest}) {
        const Values x = few_numbers(shape, dtype, 3);
        const ExtremeReference expected(x, outer, count, inner, extreme);
        for_each_schedule([&] {
          OnGpu on_x(x), y = OnGpu::poisoned({outer, inner}, dtype);
          OnGpu places = OnGpu::poisoned({outer, inner}, DType::i32), dx = OnGpu::poisoned(shape, dtype);
          launch(gpu_stream(), DimensionExtreme{.extreme = extreme,
                                                .x = on_x.view(),
                                                .y = y.view(),
                                                .places = places.view(),
                                                .count = count,
                                                .inner = inner});
          launch(
              gpu_stream(),
              ExtremeBackward{
                  .dy = y.view(), .places = places.view(), .dx = dx.view(), .count = count, .inner = inner});
          const Values of_y = y.values(), of_places = places.values(), of_dx = dx.values();
          for (int64_t i = 0; i < of_y.size(); ++i) {
            expect_same_number(of_y[i], expected.values[static_cast<size_t>(i)]);
            ASSERT_EQ(static_cast<int64_t>(of_places[i]), expected.places[static_cast<size_t>(i)]) << shape;
          }
          for (int64_t i = 0; i < of_dx.size(); ++i) {
            const int64_t at = i / (count * inner) * inner + i % inner;
            const bool is_place = i / inner % count == expected.places[static_cast<size_t>(at)];
            expect_same_number(of_dx[i], is_place ? of_y[at] : 0.0);
          }
        });
      }
    }
}

TEST(CopyRowsOnGpu, MovesWordsOfEverySize) {
  LOCKSTEP_NEEDS_GPU();
  struct Case {
    int64_t rows, length, x_stride, y_stride, x_first;
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32})
    for (const Case& c :
         {Case{1, 1, 1, 1, 0}, Case{33, 16, 64, 16, 32}, Case{5, 7, 9, 70, 1}, Case{300, 6, 6, 10, 2}}) {
      Values x = few_numbers({c.x_first + c.rows * c.x_stride}, dtype, 1), y({c.rows * c.y_stride}, dtype);
      OnGpu on_x(x), on_y(y);
      const auto kernel = [&](View from, const View& to) {
        from.data = static_cast<std::byte*>(from.data) + c.x_first * bytes(dtype);
        from.shape = {from.size() - c.x_first};
        return CopyRows{.x = from,
                        .y = to,
                        .rows = c.rows,
                        .length = c.length,
                        .x_stride = c.x_stride,
                        .y_stride = c.y_stride};
      };
      launch_on(1, kernel(x.view(), y.view()));
      launch(gpu_stream(), kernel(on_x.view(), on_y.view()));
      expect_equal(on_y.values(), y);
    }
}

}  // namespace
}  // namespace lockstep::testing
