// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/random_fill.h"

#include "kernels/expectations.h"

namespace lockstep::testing {
namespace {

Values normal(int64_t size, DType dtype, uint32_t stream_id, int threads = 1) {
  Values y({size}, dtype);
  launch_on(threads, FillNormal{.y = y.view(), .mean = 1.0, .std = 0.5, .seed = 42, .stream_id = stream_id});
  return y;
}

TEST(RandomFill, MomentsOfTheNormalAreWithinFourSigma) {
  constexpr int64_t size = 200000;
  const Values y = normal(size, DType::f64, 7);
  double sums[5] = {};
  for (int64_t i = 0; i < size; ++i)
    for (int power = 1; power <= 4; ++power) sums[power] += std::pow((y[i] - 1.0) / 0.5, power) / size;
  // The estimate of the n-th moment has the variance (E z^2n - (E z^n)^2) / size.
  EXPECT_NEAR(sums[1], 0.0, 4 * std::sqrt(1.0 / size));
  EXPECT_NEAR(sums[2], 1.0, 4 * std::sqrt(2.0 / size));
  EXPECT_NEAR(sums[3], 0.0, 4 * std::sqrt(15.0 / size));
  EXPECT_NEAR(sums[4], 3.0, 4 * std::sqrt(96.0 / size));
}

TEST(RandomFill, AnElementIsAFunctionOfItsIndex) {
  const Values whole = normal(40001, DType::f32, 7, 3);
  const Values part = normal(7, DType::f32, 7);
  for (int64_t i = 0; i < part.size(); ++i) EXPECT_EQ(part[i], whole[i]);
  EXPECT_TRUE(normal(40001, DType::f32, 7, 1) == whole);
  EXPECT_FALSE(normal(40001, DType::f32, 8, 1) == whole);
}

/// Fills in pieces of odd sizes. Their ends cover every position in a group of four, within a chunk and past
/// it.
template <class Fill>
void expect_pieces_to_make_the_whole(Fill fill) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    Values whole({30011}, dtype), pieces({30011}, dtype);
    fill.y = whole.view();
    fill.first = 0;
    launch_on(3, fill);
    int64_t size = 0;
    for (int64_t begin = 0; begin < whole.size(); begin += size) {
      size = std::min(size < 13 ? size + 1 : 2 * size + 5, whole.size() - begin);
      fill.y = part_of(pieces.view(), begin, size);
      fill.first = begin;
      launch_on(3, fill);
    }
    EXPECT_TRUE(pieces == whole) << dtype;
  }
}

TEST(RandomFill, PiecesMakeTheWhole) {
  expect_pieces_to_make_the_whole(FillNormal{.y = {}, .mean = 1.0, .std = 0.5, .seed = 42, .stream_id = 7});
  expect_pieces_to_make_the_whole(FillUniform{.y = {}, .low = -3.0, .high = 5.0, .seed = 9, .stream_id = 2});
}

TEST(RandomFill, APartBeforeTheBeginningIsRefused) {
  Values y({4});
  EXPECT_THROW(launch_on(1, FillNormal{.y = y.view(), .first = -1}), Error);
  EXPECT_THROW(launch_on(1, FillUniform{.y = y.view(), .first = -1}), Error);
}

TEST(RandomFill, EveryDtypeRoundsTheSameValue) {
  const Values exact = normal(1000, DType::f64, 3);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    expect_close(
        normal(1000, dtype, 3), [&](int64_t i) { return exact[i]; }, epsilon_of(dtype), 0x1p-24);
}

TEST(RandomFill, UniformIsTheGeneratorsWords) {
  constexpr int64_t groups_of_low_word = int64_t{1} << 32;
  for (const int64_t first : {int64_t{0}, 4 * groups_of_low_word - 7}) {
    Values y({1001}, DType::f64);
    launch_on(
        3, FillUniform{.y = y.view(), .low = -3.0, .high = 5.0, .seed = 9, .stream_id = 2, .first = first});
    const auto expected = [&](int64_t i) {
      const int64_t group = (first + i) / 4;
      const auto words =
          philox<10>(derive_key(9, 2, initialization_lane),
                     {static_cast<uint32_t>(group), static_cast<uint32_t>(group / groups_of_low_word), 0, 0});
      return -3.0 + 8.0 * uniform_float(words[static_cast<size_t>((first + i) % 4)]);
    };
    expect_close(y, expected, 0.0, 0.0);
  }
}

}  // namespace
}  // namespace lockstep::testing
