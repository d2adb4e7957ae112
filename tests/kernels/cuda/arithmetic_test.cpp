// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/arithmetic.h"

#include "kernels/broadcast_reference.h"
#include "kernels/cuda/on_gpu.h"

namespace lockstep::testing {
namespace {

constexpr DType storage_types[] = {DType::f32, DType::bf16, DType::f16};

/// Checks that K{a, b, y} has the bits of the CPU backend, also in place and between multiples of 16 bytes.
template <class K>
void check(const BroadcastShapes& shapes, DType dtype) {
  SCOPED_TRACE(concat(K::name, " ", shapes.a, " ", shapes.b, " ", dtype));
  Values a = Values::uniform(shapes.a, dtype, 1), b = Values::uniform(shapes.b, dtype, 2, 0.25, 2.0);
  Values y(shapes.y, dtype);
  launch_on(1, K{a.view(), b.view(), y.view()});
  for_each_schedule([&] {
    for (const int64_t shift : {0, 1}) {
      OnGpu on_a(a, shift), on_b(b, shift), on_y = OnGpu::poisoned(shapes.y, dtype, shift);
      launch(gpu_stream(), K{on_a.view(), on_b.view(), on_y.view()});
      EXPECT_TRUE(on_y.values() == y) << "shift " << shift;
      if (shapes.a != shapes.y) continue;
      launch(gpu_stream(), K{on_a.view(), on_b.view(), on_a.view()});
      EXPECT_TRUE(on_a.values() == y) << "in place";
    }
  });
}

template <class K>
void check_all() {
  for (const DType dtype : storage_types) {
    // One element, less than an access, several blocks with and without a rest.
    for (const int64_t size : {1, 7, 4096, 9003}) check<K>({{size}, {size}, {size}}, dtype);
    for (const BroadcastShapes& shapes : broadcast_shapes) check<K>(shapes, dtype);
  }
}

TEST(ArithmeticOnGpu, AddHasTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  check_all<Add>();
}

TEST(ArithmeticOnGpu, SubtractHasTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  check_all<Subtract>();
}

TEST(ArithmeticOnGpu, MultiplyHasTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  check_all<Multiply>();
}

TEST(ArithmeticOnGpu, DivideHasTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  check_all<Divide>();
}

TEST(ArithmeticOnGpu, DoubleIsRefused) {
  LOCKSTEP_NEEDS_GPU();
  OnGpu x(Values({4}, DType::f64));
  EXPECT_THROW(launch(gpu_stream(), Add{.a = x.view(), .b = x.view(), .y = x.view()}), Error);
}

}  // namespace
}  // namespace lockstep::testing
