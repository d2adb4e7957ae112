// SPDX-License-Identifier: Apache-2.0
// Compares products of bf16 with the manuals' definitions of the instructions.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/product_operands.h"
#include "lockstep/kernels/cpu/tiles.h"
#include "lockstep/kernels/processor.h"

namespace lockstep::testing {
namespace {

float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

/// Less than a tile, several tiles with a rest, few rows, several blocks of rows, groups of depth and
/// stripes.
constexpr std::array<ProductCase, 9> products = {{{1, 1, 1},
                                                  {3, 70, 65},
                                                  {5, 600, 70},
                                                  {32, 32, 32},
                                                  {49, 300, 130},
                                                  {100, 255, 129},
                                                  {33, 770, 17},
                                                  {900, 800, 33},
                                                  {1040, 768, 480}}};

/// Expects each element of every product to have the bits of sum_of(operands, row, column), on any number of
/// threads. The elements of a and b are at most `largest`.
template <class SumOf>
void expect_sums(std::array<double, 2> largest, SumOf sum_of) {
  for (const ProductCase& size : products)
    for_each_order(size, [&](bool of_a, bool of_b) {
      SCOPED_TRACE(concat("of ", largest[0], " x ", largest[1]));
      Operands o(size, DType::bf16, of_a, of_b, largest);
      Values c({size.m, size.n});
      o.kernel.c = c.view();
      launch_on(1, o.kernel);
      const int64_t step = size.m > 1000 ? 97 : size.m > 100 ? 7 : 1;
      for (int64_t i = 0; i < size.m; i += step)
        for (int64_t j = 0; j < size.n; ++j) {
          const auto sum = static_cast<float>(c[i * size.n + j]), expected = sum_of(o, i, j);
          ASSERT_EQ(std::bit_cast<uint32_t>(sum), std::bit_cast<uint32_t>(expected))
              << i << ", " << j << ": " << sum << " " << expected;
        }
      expect_same_on_more_threads(o.kernel, c);
    });
}

/// Two packed factors with as many columns as a tile.
template <class Tiles>
class Factors {
 public:
  Factors(gemm::Lanes<bfloat16> left, gemm::Lanes<bfloat16> right, int64_t depth) : depth_(depth) {
    const auto size = static_cast<size_t>(Tiles::columns * round_up(depth, 32));
    rows_.resize(size), left_.resize(size), right_.resize(size);
    Tiles::pack_rows(rows_.data(), left, std::min(Tiles::rows, Tiles::columns), depth);
    Tiles::pack_columns(left_.data(), left, Tiles::columns, depth);
    Tiles::pack_columns(right_.data(), right, Tiles::columns, depth);
  }

  /// Returns the bits of the first `rows` rows of the product.
  std::vector<uint32_t> product(int64_t rows) const {
    std::vector<float> tile(Tiles::rows * Tiles::columns);
    Tiles::multiply(tile.data(), rows_.data(), right_.data(), rows, Tiles::columns, depth_,
                    gemm::Store::overwrite);
    return bits_of(tile, rows * Tiles::columns);
  }
  std::vector<uint32_t> lanes() const {
    std::vector<float> sums(Tiles::columns);
    Tiles::multiply_lanes(sums.data(), left_.data(), right_.data(), depth_);
    return bits_of(sums, Tiles::columns);
  }

 private:
  static std::vector<uint32_t> bits_of(const std::vector<float>& sums, int64_t count) {
    std::vector<uint32_t> bits(static_cast<size_t>(count));
    std::memcpy(bits.data(), sums.data(), bits.size() * sizeof(float));
    return bits;
  }

  int64_t depth_;
  std::vector<typename Tiles::Packed> rows_, left_, right_;
};

// The products use AVX512-BF16 if the build has it. Otherwise they use fp32.
TEST(Bf16Products, AreChainsInWhichSubnormalNumbersAreZero) {
  const auto chain = [](const Operands& o, int64_t row, int64_t column) {
    return chained<float>(o, row, column, flushed);
  };
  expect_sums({2, 2}, chain);
  expect_sums({0x1p-62, 0x1p-62}, chain);  // some products and some sums of them are subnormal
  expect_sums({0x1p-124, 8}, chain);       // some factors are subnormal
}

// Compares the chains of both kinds of tiles on AVX512-BF16. Many of the sums are near the smallest normal
// number.
TEST(Bf16Products, WordsHaveTheBitsOfVectors) {
  using Words = ChainTiles<bfloat16>;
  using Vectors = VectorTiles<bfloat16>;
  if (!gemm::bf16::has_words) GTEST_SKIP() << "this build does not use AVX512-BF16";
  constexpr int64_t width = Vectors::columns, rows = Vectors::rows;
  for (const int64_t depth : {1, 2, 33, 64, 300})
    for (uint64_t seed = 0; seed < 40; ++seed) {
      // Factors from 2^-70 to 2^-56 are multiplied. The sums therefore begin at the smallest subnormal
      // numbers.
      const Values exponents = Values::uniform({2, depth, width}, DType::f32, 2 * seed, -70, -56);
      Values lanes = Values::uniform({2, depth, width}, DType::bf16, 2 * seed + 1, -2, 2);
      for (int64_t i = 0; i < lanes.size(); ++i)
        lanes.set(i, std::ldexp(lanes[i], static_cast<int>(exponents[i])));
      const gemm::Lanes<bfloat16> left{lanes.view().as<bfloat16>(), 1, width};
      const gemm::Lanes<bfloat16> right = left.behind(depth);
      Factors<Words> words(left, right, depth);
      Factors<Vectors> vectors(left, right, depth);
      ASSERT_EQ(words.product(rows), vectors.product(rows)) << "depth " << depth << ", seed " << seed;
      ASSERT_EQ(words.lanes(), vectors.lanes()) << "depth " << depth << ", seed " << seed;
    }
}

class Bf16Unit : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_bf16_unit()) GTEST_SKIP() << "this processor has no AMX";
    use_bf16_unit(true);
  }
  void TearDown() override { use_bf16_unit(false); }
};

// For every 32 of depth, two chains of fused multiply-adds sum the even and the odd elements. The two results
// are added together and then to the sum.
TEST_F(Bf16Unit, EverySumIsOfTwoChainsOfEveryThirtyTwo) {
  expect_sums({2, 2}, [](const Operands& o, int64_t row, int64_t column) {
    float sum = 0;
    for (int64_t begin = 0; begin < o.kernel.k(); begin += 32) {
      std::array<float, 2> chains{};
      for (int64_t d = begin; d < std::min(begin + 32, o.kernel.k()); ++d)
        chains[d % 2] = flushed(std::fma(flushed(static_cast<float>(o.left(row, d))),
                                         flushed(static_cast<float>(o.right(d, column))), chains[d % 2]));
      sum = flushed(sum + flushed(chains[0] + chains[1]));
    }
    return sum;
  });
}

TEST_F(Bf16Unit, TakesSubnormalNumbersForZeroAndKeepsInfinities) {
  Values a({1, 2}, DType::bf16), b({2, 1}, DType::bf16), c({1, 1});
  const auto product = [&](double a0, double a1, double b0, double b1) {
    a.set(0, a0), a.set(1, a1), b.set(0, b0), b.set(1, b1);
    launch_on(1, MatMul{.a = a.view(), .b = b.view(), .c = c.view()});
    return c[0];
  };
  EXPECT_EQ(product(0x1p-130, 1, 0x1p100, 3), 3);
  EXPECT_EQ(product(0x1p-100, 0, 0x1p-30, 0), 0);
  EXPECT_EQ(product(INFINITY, 1, 2, 3), INFINITY);
  EXPECT_TRUE(std::isnan(product(INFINITY, 1, 0, 3)));
  EXPECT_TRUE(std::isnan(product(NAN, 1, 0, 3)));
}

}  // namespace
}  // namespace lockstep::testing
