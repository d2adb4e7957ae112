// SPDX-License-Identifier: Apache-2.0
#include "kernels/sum.h"

#include "kernels/cuda/on_gpu.h"

namespace lockstep::testing {
namespace {

double sum_on_gpu(const Values& x, int64_t shift = 0) {
  OnGpu input(x, shift), y = OnGpu::poisoned({1}, input.view().dtype);
  launch(gpu_stream(), Sum{.x = input.view(), .y = y.view()});
  return y.values()[0];
}

double squares_on_gpu(const std::vector<View>& inputs) {
  OnGpu y = OnGpu::poisoned({}, DType::f64);
  launch(gpu_stream(), SumOfSquares{.inputs = inputs, .y = y.view()});
  return y.values()[0];
}

TEST(SumOnGpu, OfOneBlockHasTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  for_each_schedule([] {
    for (const int64_t size : {0, 1, 31, 511, 513, 4095, 4096})
      for (const int64_t shift : {0, 1}) {
        Values x = Values::uniform({size}, DType::f32, 1);
        Values y({1}), squares({1}, DType::f64);
        launch_on(1, Sum{.x = x.view(), .y = y.view()});
        launch_on(1, SumOfSquares{.inputs = {x.view()}, .y = squares.view()});
        EXPECT_EQ(sum_on_gpu(x, shift), y[0]) << size;
        EXPECT_EQ(squares_on_gpu({OnGpu(x, shift).view()}), squares[0]) << size;
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
      // At most 128 + 5 additions in a lane of a block, in f32, and the rounding of the result.
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
  EXPECT_THROW(squares_on_gpu({x.view()}), Error);
}

TEST(SumOfSquaresOnGpu, MatchesReferenceOverSeveralTensors) {
  LOCKSTEP_NEEDS_GPU();
  Values a = Values::uniform({3, 5}, DType::f32, 1), b = Values::uniform({90001}, DType::f32, 2), none({0});
  Values c = Values::uniform({8192}, DType::f32, 3);
  OnGpu on_a(a, 3), on_b(b), on_none(none), on_c(c, 1);
  const double expected = dot(a, a) + dot(b, b) + dot(c, c);
  std::vector<double> sums;
  for_each_schedule([&] {
    sums.push_back(squares_on_gpu({on_a.view(), on_none.view(), on_b.view(), on_c.view()}));
  });
  for (const double sum : sums) EXPECT_EQ(sum, sums[0]);
  // Each of the reference's additions rounds; those of the kernel are fewer in a row.
  EXPECT_NEAR(sums[0], expected, 98208 * 0x1p-52 * expected);
}

TEST(SumOfSquaresOnGpu, MoreTensorsThanATableHolds) {
  LOCKSTEP_NEEDS_GPU();
  Values x({1401});
  for (int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>(i));
  OnGpu on_gpu(x);
  std::vector<View> inputs;
  for (int64_t i = 0; i < x.size(); ++i) {
    inputs.push_back(on_gpu.view());
    inputs.back().shape = {1};
    inputs.back().data = static_cast<float*>(on_gpu.view().data) + i;
  }
  EXPECT_EQ(squares_on_gpu(inputs), dot(x, x));  // integers: exact in any order
}

TEST(SumOfSquaresOnGpu, CutsAtBlocksDoNotShow) {
  LOCKSTEP_NEEDS_GPU();
  OnGpu x(Values::uniform({3 * sum_block + 11}, DType::f32, 3));
  View head = x.view(), tail = x.view();
  head.shape = {2 * sum_block};
  tail.shape = {sum_block + 11};
  tail.data = static_cast<float*>(tail.data) + 2 * sum_block;
  EXPECT_EQ(squares_on_gpu({head, tail}), squares_on_gpu({x.view()}));
}

TEST(ClipFactorOnGpu, HasTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  for (const double squares : {0.0, 1e-9, 0.3, 0.999, 7.7, 1e30, HUGE_VAL, std::nan("")})
    for (const double max_norm : {0.0, 0.5, 1.0}) {
      Values sum({}, DType::f64), norm({}, DType::f64), factor({});
      sum.set(0, squares);
      OnGpu on_sum(sum), on_norm = OnGpu::poisoned({}, DType::f64),
                         on_factor = OnGpu::poisoned({}, DType::f32);
      ClipFactor k{
          .sum_of_squares = sum.view(), .max_norm = max_norm, .norm = norm.view(), .factor = factor.view()};
      launch_on(1, k);
      k.sum_of_squares = on_sum.view();
      k.norm = on_norm.view();
      k.factor = on_factor.view();
      launch(gpu_stream(), k);
      EXPECT_TRUE(on_norm.values() == norm || std::isnan(norm[0])) << squares << " " << max_norm;
      EXPECT_TRUE(on_factor.values() == factor) << squares << " " << max_norm;
    }
}

}  // namespace
}  // namespace lockstep::testing
