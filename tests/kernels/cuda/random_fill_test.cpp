// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/random_fill.h"

#include "kernels/cuda/on_gpu.h"
#include "lockstep/core/graph.h"

namespace lockstep::testing {
namespace {

template <class Fill>
void expect_bits_of_the_cpu(Fill fill) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t size : {1, 7, 4097}) {
      Values expected({size}, dtype);
      OnGpu y = OnGpu::poisoned({size}, dtype);
      fill.y = expected.view();
      launch_on(1, fill);
      fill.y = y.view();
      launch(gpu_stream(), fill);
      EXPECT_TRUE(y.values() == expected) << dtype << " " << size;

      OnGpu pieces = OnGpu::poisoned({size}, dtype);
      constexpr int64_t piece = 1023;
      for (Fill k = fill; k.first < size; k.first += piece) {
        k.y = part_of(pieces.view(), k.first, std::min(piece, size - k.first));
        launch(gpu_stream(), k);
      }
      EXPECT_TRUE(pieces.values() == expected) << dtype << " " << size << " in pieces";
    }
}

TEST(RandomFillOnGpu, HasTheBitsOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  for_each_schedule([] {
    expect_bits_of_the_cpu(FillNormal{.y = {}, .mean = 1.0, .std = 0.5, .seed = 42, .stream_id = 7});
    expect_bits_of_the_cpu(FillUniform{.y = {}, .low = -3.0, .high = 5.0, .seed = 9, .stream_id = 2});
  });
}

TEST(RandomFillOnGpu, CannotBeRecorded) {
  LOCKSTEP_NEEDS_GPU();
  OnGpu y(Values({8}));
  EXPECT_THROW(Graph(gpu_stream(), [&] { launch(gpu_stream(), FillNormal{.y = y.view()}); }), Error);
}

}  // namespace
}  // namespace lockstep::testing
