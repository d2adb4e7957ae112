// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/transpose.h"

#include "kernels/cuda/on_gpu.h"
#include "kernels/transpose_cases.h"

namespace lockstep::testing {
namespace {

TEST(TransposeOnGpu, MovesEveryElementToItsPlace) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32})
    for (const auto& [shape, first, second] : transpose_cases) {
      SCOPED_TRACE(concat(shape, " ", first, " ", second, " ", dtype));
      const Values x = Values::uniform(shape, dtype, 1, -100.0, 100.0);
      const Values expected = transposed(x, dtype, first, second);
      for_each_schedule([&, &from = shape, a = first, b = second] {
        for (const int64_t shift : {0, 1}) {
          OnGpu on_x(x, shift), y = OnGpu::poisoned(Transpose::swapped(from, a, b), dtype, shift);
          launch(gpu_stream(), Transpose{.x = on_x.view(), .y = y.view(), .first = a, .second = b});
          EXPECT_TRUE(y.values() == expected) << "shift " << shift;
        }
      });
    }
}

}  // namespace
}  // namespace lockstep::testing
