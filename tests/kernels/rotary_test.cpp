// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/rotary.h"

#include "kernels/expectations.h"

namespace lockstep::testing {
namespace {

/// Frequencies from 1 down to about 1e-4, as those of a model.
Values frequencies_of(int64_t half, DType dtype) {
  Values frequencies({half}, dtype);
  for (int64_t i = 0; i < half; ++i)
    frequencies.set(i, std::pow(1e4, -static_cast<double>(i) / static_cast<double>(half)));
  return frequencies;
}

Values table_of(const std::vector<int32_t>& positions, int64_t half, DType dtype, int threads = 1) {
  Values frequencies = frequencies_of(half, dtype), places = Values::of(positions);
  Values table({std::ssize(positions), 2 * half}, dtype);
  launch_on(threads,
            RotaryTable{.frequencies = frequencies.view(), .positions = places.view(), .y = table.view()});
  return table;
}

TEST(RotaryTable, HasTheCosinesAndSinesOfRoundedAngles) {
  const std::vector<int32_t> positions = {0, 1, 2, 77, 4095, 131071, 2'000'000'000};
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t half : {1, 5, 64, 67}) {
      const Values table = table_of(positions, half, dtype), frequencies = frequencies_of(half, dtype);
      const auto reference = [&](int64_t i) {
        const double position = positions[static_cast<size_t>(i / (2 * half))];
        double angle = position * frequencies[i % half];
        if (dtype == DType::f32)
          angle = static_cast<float>(static_cast<float>(position) * frequencies[i % half]);
        return i / half % 2 == 0 ? std::cos(angle) : std::sin(angle);
      };
      expect_close(table, reference, 0.0, dtype == DType::f32 ? 0x1p-24 : 0x1p-51);
    }
}

TEST(RotaryTable, WithoutPositionsCountsFromZero) {
  Values frequencies = frequencies_of(6, DType::f32), counted({5, 12});
  launch_on(3, RotaryTable{.frequencies = frequencies.view(), .y = counted.view()});
  EXPECT_TRUE(counted == table_of({0, 1, 2, 3, 4}, 6, DType::f32));
}

TEST(Rotate, MatchesComplexProducts) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t half : {1, 4, 67}) {
      constexpr int64_t batch = 2, tokens = 3, heads = 2;
      Values x = Values::uniform({batch, tokens, heads * 2 * half}, dtype, 1), y(x.shape(), dtype);
      Values table = table_of({4, 0, 9}, half, dtype);
      launch_on(1, Rotate{.x = x.view(), .table = table.view(), .y = y.view()});
      const auto reference = [&](int64_t i) {
        const int64_t token = i / (heads * 2 * half) % tokens, d = i % (2 * half);
        const double cosine = table[token * 2 * half + d % half];
        const double sine = table[token * 2 * half + half + d % half];
        return d < half ? x[i] * cosine - x[i + half] * sine : x[i] * cosine + x[i - half] * sine;
      };
      // One product of values up to 2 is rounded, then the sum is.
      expect_close(y, reference, 0.0, 4 * epsilon_of(dtype));
    }
}

TEST(Rotate, InverseIsTheGradientAndTheWayBack) {
  Values x = Values::uniform({4, 2, 10}, DType::f64, 1), y(x.shape(), DType::f64),
         back(x.shape(), DType::f64);
  Values dy = Values::uniform(x.shape(), DType::f64, 2), dx(x.shape(), DType::f64);
  Values table = table_of({3, 8}, 5, DType::f64);
  const auto loss = [&] {
    launch_on(1, Rotate{.x = x.view(), .table = table.view(), .y = y.view()});
    return dot(y, dy);
  };
  loss();
  launch_on(1, Rotate{.x = dy.view(), .table = table.view(), .y = dx.view(), .inverse = true});
  expect_slopes(x, dx, loss);
  loss();
  launch_on(1, Rotate{.x = y.view(), .table = table.view(), .y = back.view(), .inverse = true});
  expect_close(
      back, [&](int64_t i) { return x[i]; }, 0.0, 8 * epsilon_of(DType::f64));
}

TEST(Rotate, ThreadsAliasesAndTheCutOfABatchDoNotShowInTheBits) {
  constexpr int64_t tokens = 37, columns = 3 * 34;
  Values x = Values::uniform({11, tokens, columns}, DType::f32, 1), y(x.shape());
  std::vector<int32_t> positions;
  for (int32_t i = 0; i < tokens; ++i) positions.push_back(i);
  Values table = table_of(positions, 17, DType::f32, 3);
  EXPECT_TRUE(table == table_of(positions, 17, DType::f32));
  launch_on(1, Rotate{.x = x.view(), .table = table.view(), .y = y.view()});
  // The last token alone, as generation with a cache computes it.
  Values one({1, columns}), last = table_of({tokens - 1}, 17, DType::f32);
  const int64_t first = (tokens - 1) * columns;
  for (int64_t i = 0; i < columns; ++i) one.set(i, x[first + i]);
  launch_on(1, Rotate{.x = one.view(), .table = last.view(), .y = one.view()});
  for (int64_t i = 0; i < columns; ++i) ASSERT_EQ(one[i], y[first + i]);
  launch_on(3, Rotate{.x = x.view(), .table = table.view(), .y = x.view()});
  EXPECT_TRUE(x == y);
}

TEST(Rotate, ShapesThatDoNotFitAreRefused) {
  Values x({3, 12}), table({2, 4}), wide({3, 8}), half({3, 4}, DType::bf16);
  EXPECT_THROW(launch_on(1, Rotate{.x = x.view(), .table = table.view(), .y = x.view()}), Error);
  EXPECT_THROW(launch_on(1, Rotate{.x = x.view(), .table = wide.view(), .y = x.view()}), Error);
  EXPECT_THROW(launch_on(1, Rotate{.x = x.view(), .table = half.view(), .y = x.view()}), Error);
  Values frequencies({2}), positions({3});
  EXPECT_THROW(
      launch_on(
          1, RotaryTable{.frequencies = frequencies.view(), .positions = positions.view(), .y = half.view()}),
      Error);
}

}  // namespace
}  // namespace lockstep::testing
