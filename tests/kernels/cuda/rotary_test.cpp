// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/rotary.h"

#include "kernels/cuda/on_gpu.h"

namespace lockstep::testing {
namespace {

/// Returns theta^(-i / half) for i in [0, half), as models of Llama's family have them.
Values frequencies(int64_t half, double theta = 10000.0) {
  Values values({half}, DType::f32);
  for (int64_t i = 0; i < half; ++i)
    values.set(i, std::pow(theta, -static_cast<double>(i) / static_cast<double>(half)));
  return values;
}

/// Returns the table of the CPU. Without positions the tokens are counted from 0.
Values table_on_cpu(Values frequency, int64_t tokens, const std::vector<int32_t>& positions = {}) {
  Values y({tokens, 2 * frequency.size()}, DType::f32), position = Values::of(positions);
  launch_on(1, RotaryTable{.frequencies = frequency.view(),
                           .positions = positions.empty() ? View{} : position.view(),
                           .y = y.view()});
  return y;
}

TEST(RotaryOnGpu, TableHasTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  for (const auto& [tokens, half] : {std::pair<int64_t, int64_t>{1, 1}, {300, 32}, {37, 65}}) {
    SCOPED_TRACE(concat(tokens, " tokens, ", half, " frequencies"));
    const Values frequency = frequencies(half), expected = table_on_cpu(frequency, tokens);
    for_each_schedule([&, &tokens = tokens, &half = half] {
      OnGpu on_gpu(frequency), y = OnGpu::poisoned({tokens, 2 * half}, DType::f32);
      launch(gpu_stream(), RotaryTable{.frequencies = on_gpu.view(), .y = y.view()});
      EXPECT_TRUE(y.values() == expected);
    });
  }
}

/// Angles of all four quarters, and such that lose digits in fp32.
TEST(RotaryOnGpu, GivenPositionsHaveTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  std::vector<int32_t> positions{0, 1, 2, 3, 4, 5, 6, 131071, 131072, 16777217, 1000000007, 2147483647};
  const auto tokens = static_cast<int64_t>(positions.size());
  for (const double theta : {10.0, 500000.0}) {
    const Values frequency = frequencies(64, theta);
    OnGpu on_gpu(frequency), at(Values::of(positions)), y = OnGpu::poisoned({tokens, 128}, DType::f32);
    launch(gpu_stream(), RotaryTable{.frequencies = on_gpu.view(), .positions = at.view(), .y = y.view()});
    EXPECT_TRUE(y.values() == table_on_cpu(frequency, tokens, positions)) << theta;
  }
}

struct Heads {
  int64_t texts, tokens, heads, size;
};

/// Halves of whole packs, of single elements, and of packs in f32 alone. The last shape has several blocks.
constexpr Heads shapes[] = {{2, 5, 3, 10}, {1, 7, 2, 8}, {3, 4, 1, 16}, {2, 33, 5, 64}, {1, 60, 3, 128}};

TEST(RotaryOnGpu, RotationHasTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Heads& s : shapes)
      for (const bool inverse : {false, true}) {
        SCOPED_TRACE(concat(s.tokens, " tokens, ", s.heads, " heads of ", s.size, " in ", dtype));
        const Shape shape{s.texts, s.tokens, s.heads * s.size};
        Values x = Values::uniform(shape, dtype, 1), expected(shape, dtype);
        Values table = table_on_cpu(frequencies(s.size / 2), s.tokens);
        launch_on(1, Rotate{.x = x.view(), .table = table.view(), .y = expected.view(), .inverse = inverse});
        OnGpu angles(table);
        for_each_schedule([&] {
          for (const int64_t shift : {0, 1}) {
            OnGpu from(x, shift), y = OnGpu::poisoned(shape, dtype, shift);
            launch(gpu_stream(),
                   Rotate{.x = from.view(), .table = angles.view(), .y = y.view(), .inverse = inverse});
            EXPECT_TRUE(y.values() == expected) << shift;
            launch(gpu_stream(),
                   Rotate{.x = from.view(), .table = angles.view(), .y = from.view(), .inverse = inverse});
            EXPECT_TRUE(from.values() == expected) << shift << " in place";
          }
        });
      }
}

TEST(RotaryOnGpu, NoTokensAreFineAndDoubleIsRefused) {
  LOCKSTEP_NEEDS_GPU();
  OnGpu none = OnGpu::poisoned({0, 16}, DType::f32), frequency(frequencies(8));
  launch(gpu_stream(), RotaryTable{.frequencies = frequency.view(), .y = none.view()});
  launch(gpu_stream(), Rotate{.x = none.view(), .table = none.view(), .y = none.view()});
  OnGpu table = OnGpu::poisoned({1, 16}, DType::f64), of_double = OnGpu::poisoned({8}, DType::f64);
  EXPECT_THROW(launch(gpu_stream(), RotaryTable{.frequencies = of_double.view(), .y = table.view()}), Error);
  EXPECT_THROW(launch(gpu_stream(), Rotate{.x = table.view(), .table = table.view(), .y = table.view()}),
               Error);
}

}  // namespace
}  // namespace lockstep::testing
