// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/on_gpu.h"
#include "lockstep/kernels/sum.h"

namespace lockstep::testing {
namespace {

struct Case {
  int64_t outer, count, inner;
};

// No terms, one run and several, one block and several, contiguous elements and columns.
constexpr Case cases[] = {{3, 0, 1},   {2, 0, 5},    {5, 7, 1},    {4, 7, 3},    {2, 64, 65},
                          {3, 65, 40}, {1, 1024, 7}, {1, 2500, 9}, {2, 4097, 1}, {40, 200, 33}};

// The GPU sums in f32. The CPU does so for the same numbers stored as f32.
TEST(DimensionSumOnGpu, HasTheBitsOfTheCpuInEveryDtype) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Case& c : cases) {
      SCOPED_TRACE(concat("[", c.outer, ", ", c.count, ", ", c.inner, "] ", dtype));
      const Shape shape{c.outer, c.count, c.inner}, of_y{c.outer, c.inner};
      const Values x = Values::uniform(shape, dtype, 1);
      Values single(shape), expected(of_y);
      for (int64_t i = 0; i < x.size(); ++i) single.set(i, x[i]);
      DimensionSum k{.x = single.view(), .y = expected.view(), .count = c.count, .inner = c.inner};
      launch_on(1, k);
      for_each_schedule([&] {
        OnGpu on_x(x), y = OnGpu::poisoned(of_y, DType::f32);
        k.x = on_x.view();
        k.y = y.view();
        launch(gpu_stream(), k);
        EXPECT_TRUE(y.values() == expected);
      });
    }
}

TEST(DimensionSumOnGpu, F64IsForTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  OnGpu x(Values({2, 3}, DType::f64)), y(Values({2}, DType::f64));
  EXPECT_THROW(launch(gpu_stream(), DimensionSum{.x = x.view(), .y = y.view(), .count = 3, .inner = 1}),
               Error);
}

}  // namespace
}  // namespace lockstep::testing
