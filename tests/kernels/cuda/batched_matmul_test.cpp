// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/batched_matmul.h"

#include "kernels/batched_matmul_cases.h"
#include "kernels/cuda/on_gpu.h"
#include "kernels/expectations.h"

namespace lockstep::testing {
namespace {

/// Returns the same numbers stored as f32.
Values single_precision(const Values& values) {
  Values copy(values.shape());
  for (int64_t i = 0; i < copy.size(); ++i) copy.set(i, values[i]);
  return copy;
}

/// Checks that every fp32 product has the bits of the CPU. Products in 16 bits must be these bits rounded
/// once.
void check(const BatchedCase& shapes, DType dtype, bool transpose_a, bool transpose_b) {
  SCOPED_TRACE(concat(shapes.a, " ", shapes.b, " ", transpose_a, transpose_b, " ", dtype));
  BatchedOperands o(shapes, dtype, transpose_a, transpose_b);
  Values a = single_precision(o.a), b = single_precision(o.b), exact(shapes.c);
  BatchedMatMul k = o.kernel;
  k.a = a.view(), k.b = b.view(), k.c = exact.view();
  launch_on(1, k);
  for (const DType dtype_of_c : {dtype, DType::f32}) {
    Values expected(shapes.c, dtype_of_c);
    for (int64_t i = 0; i < exact.size(); ++i) expected.set(i, exact[i]);
    for_each_schedule([&] {
      OnGpu on_a(o.a), on_b(o.b), c = OnGpu::poisoned(shapes.c, dtype_of_c);
      k.a = on_a.view(), k.b = on_b.view(), k.c = c.view();
      launch(gpu_stream(), k);
      EXPECT_TRUE(c.values() == expected);
    });
    if (dtype == DType::f32) return;
  }
}

TEST(BatchedMatMulOnGpu, HasTheBitsOfTheCpuInEveryDtype) {
  LOCKSTEP_NEEDS_GPU();
  for (const BatchedCase& shapes : batched_cases) {
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true}) check(shapes, DType::f32, transpose_a, transpose_b);
    check(shapes, DType::bf16, false, true);
    check(shapes, DType::f16, true, false);
  }
}

// Each product has 512^3 multiply-adds.
TEST(BatchedMatMulOnGpu, LargeProductsAreThoseOfMatMul) {
  LOCKSTEP_NEEDS_GPU();
  constexpr int64_t size = 512;
  OnGpu a(Values::uniform({2, size, size}, DType::bf16, 1)), b(Values::uniform({size, size}, DType::bf16, 2));
  OnGpu c = OnGpu::poisoned({2, size, size}, DType::f32),
        expected = OnGpu::poisoned({2, size, size}, DType::f32);
  launch(gpu_stream(), BatchedMatMul{.a = a.view(), .b = b.view(), .c = c.view(), .transpose_b = true});
  launch(gpu_stream(), MatMul{.a = a.view(), .b = b.view(), .c = expected.view(), .transpose_b = true});
  // A product of 1024 rows may have another plan than one of 512 rows. Both sum 512 terms up to 4, in
  // different orders.
  expect_close(
      c.values(), [&, &values = expected.values()](int64_t i) { return values[i]; }, 0.0,
      2 * size * 0x1p-24 * 4 * size);
}

TEST(BatchedMatMulOnGpu, F64IsForTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  OnGpu x(Values({2, 3, 3}, DType::f64)), c(Values({2, 3, 3}, DType::f64));
  EXPECT_THROW(launch(gpu_stream(), BatchedMatMul{.a = x.view(), .b = x.view(), .c = c.view()}), Error);
}

}  // namespace
}  // namespace lockstep::testing
