// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/sum.h"

#include "kernels/cuda/on_gpu.h"

namespace lockstep::testing {
namespace {

double sum_on_gpu(const Values& x, int64_t shift = 0) {
  OnGpu input(x, shift), y = OnGpu::poisoned({1}, input.view().dtype);
  launch(gpu_stream(), Sum{.x = input.view(), .y = y.view()});
  return y.values()[0];
}

Values squares_on_gpu(OnGpu x, const std::vector<BlockSquares::Blocks>& ranges) {
  OnGpu y = OnGpu::poisoned({(x.view().size() + sum_block - 1) / sum_block}, DType::f64);
  launch(gpu_stream(), BlockSquares{.x = x.view(), .y = y.view(), .ranges = ranges});
  return y.values();
}

TEST(SumOnGpu, OfOneBlockHasTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  for_each_schedule([] {
    for (const int64_t size : {0, 1, 31, 511, 513, 4095, 4096})
      for (const int64_t shift : {0, 1}) {
        Values x = Values::uniform({size}, DType::f32, 1);
        Values y({1});
        launch_on(1, Sum{.x = x.view(), .y = y.view()});
        EXPECT_EQ(sum_on_gpu(x, shift), y[0]) << size;
      }
  });
}

TEST(SumOnGpu, MatchesReferenceInEveryDtype) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t size : {1, 4097, 100003}) {
      const Values x = Values::uniform({size}, dtype, 1, -1.0, 2.0);
      double expected = 0.0, magnitude = 0.0;
      for (int64_t i = 0; i < size; ++i) expected += x[i], magnitude += std::fabs(x[i]);
      // A lane of a block has at most 128 + 5 additions in f32. The result is rounded once more.
      const double tolerance = 133 * 0x1p-24 * magnitude + epsilon_of(dtype) / 2 * std::fabs(expected);
      std::vector<double> sums;
      for_each_schedule([&] { sums.push_back(sum_on_gpu(x)); });
      for (const double sum : sums) EXPECT_EQ(sum, sums[0]);
      EXPECT_NEAR(sums[0], expected, tolerance) << dtype << " " << size;
    }
}

TEST(SumOnGpu, F64IsForTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  OnGpu x(Values({5}, DType::f64)), y(Values({1}, DType::f64));
  EXPECT_THROW(launch(gpu_stream(), Sum{.x = x.view(), .y = y.view()}), Error);
  EXPECT_THROW(squares_on_gpu(x, {{0, 1}}), Error);
}

TEST(BlockSquaresOnGpu, HaveTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  for_each_schedule([] {
    for (const int64_t size : {int64_t{1}, int64_t{513}, 9 * sum_block, 11 * sum_block + 77})
      for (const int64_t shift : {0, 1}) {
        Values x = Values::uniform({size}, DType::f32, 1);
        const int64_t blocks = (size + sum_block - 1) / sum_block;
        Values expected({blocks}, DType::f64);
        launch_on(1, BlockSquares{.x = x.view(), .y = expected.view(), .ranges = {{0, blocks}}});
        EXPECT_TRUE(squares_on_gpu(OnGpu(x, shift), {{0, blocks}}) == expected) << size;
      }
  });
}

TEST(BlockSquaresOnGpu, OfPartsThatLieElsewhereHaveTheBitsOfTheWhole) {
  LOCKSTEP_NEEDS_GPU();
  for_each_schedule([] {
    Values x = Values::uniform({9 * sum_block + 77}, DType::f32, 1), expected({13}, DType::f64);
    // Blocks [0, 3) of x are blocks [10, 13) of y. The last four blocks of x, one of them short, are blocks
    // [1, 5) of y.
    const std::vector<BlockSquares::Blocks> ranges{{1, 5, -5}, {10, 13, 10}};
    launch_on(1, BlockSquares{.x = x.view(), .y = expected.view(), .ranges = ranges});
    OnGpu on_x(x, 1), on_y(Values({13}, DType::f64));
    launch(gpu_stream(), BlockSquares{.x = on_x.view(), .y = on_y.view(), .ranges = ranges});
    EXPECT_TRUE(on_y.values() == expected);
  });
}

TEST(BlockSquaresOnGpu, MoreRangesThanATableHolds) {
  LOCKSTEP_NEEDS_GPU();
  constexpr int64_t blocks = 4101;
  const OnGpu x(Values::uniform({blocks * sum_block}, DType::f32, 3));
  std::vector<BlockSquares::Blocks> every_second;
  for (int64_t block = 0; block < blocks; block += 2) every_second.push_back({block, block + 1});
  const Values whole = squares_on_gpu(x, {{0, blocks}}), cut = squares_on_gpu(x, every_second);
  for (int64_t block = 0; block < blocks; ++block)
    EXPECT_EQ(cut[block] == whole[block], block % 2 == 0) << "block " << block;
}

TEST(ClipFactorOnGpu, HasTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  for (const double squares : {0.0, 1e-9, 0.3, 0.999, 7.7, 1e30, HUGE_VAL, std::nan("")})
    for (const double max_norm : {0.0, 0.5, 1.0}) {
      Values sums({2001}, DType::f64), norm({}, DType::f64), factor({});
      sums.set(1500, squares);  // one addend, so that no order can show
      OnGpu on_sums(sums), on_norm = OnGpu::poisoned({}, DType::f64),
                           on_factor = OnGpu::poisoned({}, DType::f32);
      ClipFactor k{
          .squares = sums.view(), .max_norm = max_norm, .norm = norm.view(), .factor = factor.view()};
      launch_on(1, k);
      k.squares = on_sums.view();
      k.norm = on_norm.view();
      k.factor = on_factor.view();
      launch(gpu_stream(), k);
      EXPECT_TRUE(on_norm.values() == norm || std::isnan(norm[0])) << squares << " " << max_norm;
      EXPECT_TRUE(on_factor.values() == factor) << squares << " " << max_norm;
    }
}

}  // namespace
}  // namespace lockstep::testing
