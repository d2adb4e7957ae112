// SPDX-License-Identifier: Apache-2.0
// Attention with fewer heads of keys than of queries, and with queries, keys and values in several arrays.
#include "kernels/cuda/attention_cases.h"

namespace lockstep::testing {
namespace {

// Two, three and all query heads for a head of keys, with each size that kernels are made for and lengths
// beside whole tiles.
const std::vector<Case> cases = {{2, 33, 4, 32, 0.2, 2, true}, {1, 130, 4, 64, 0, 2},
                                 {1, 67, 4, 64, 0.1, 1, true}, {1, 70, 3, 80, 0, 1, true},
                                 {1, 65, 2, 96, 0.1, 1},       {1, 40, 6, 128, 0, 2, true},
                                 {1, 67, 2, 128, 0.2, 1},      {2, 45, 3, 40, 0.1, 0, true}};

TEST(GroupedAttentionOnGpu, MatchesTheCpuInDouble) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : gpu_dtypes)
    for (const Case& c : cases) expect_matches(c, dtype);
}

TEST(GroupedAttentionOnGpu, ApartHasTheBitsOfPackedInEverySchedule) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : gpu_dtypes)
    for (Case c : {Case{2, 33, 4, 32, 0.2, 2}, Case{1, 70, 2, 64, 0, 1}}) {
      OnDevice packed(c, dtype);
      c.apart = true;
      OnDevice apart(c, dtype);
      packed.run();
      for_each_schedule([&] {
        apart.run();
        EXPECT_EQ(apart.y, packed.y) << dtype;
        EXPECT_EQ(apart.log_sum_exp, packed.log_sum_exp) << dtype;
        EXPECT_EQ(apart.dqkv, packed.dqkv) << dtype;
      });
    }
}

TEST(GroupedAttentionOnGpu, RowsFromAQueryOnAreThoseOfAll) {
  LOCKSTEP_NEEDS_GPU();
  constexpr int64_t time = 140, first = 100;
  for (const DType dtype : gpu_dtypes) {
    OnDevice all({1, time, 4, 32, 0.2, 2, true}, dtype), some = all;
    all.run();
    some.run_from(first);
    for (size_t i = first * 128; i < all.y.size(); ++i)
      ASSERT_EQ(some.y[i], all.y[i]) << dtype << " element " << i;
  }
}

TEST(GroupedAttentionOnGpu, AGradientAddsItsQueryHeadsInOrderAndRoundsOnce) {
  LOCKSTEP_NEEDS_GPU();
  // As in the test of this name for the CPU: a single token has the weight 1.
  for (const DType dtype : gpu_dtypes) {
    const double large = dtype == DType::f16 ? 2048 : 256;
    for (const std::vector<double>& numbers :
         {std::vector<double>{16384, 0x1p-11, -16384, 0x1p-11}, {large, 1, 1, 0}}) {
      OnDevice o({1, 1, 4, 8, 0, 1}, dtype);
      for (size_t i = 0; i < o.dy.size(); ++i) o.dy[i] = numbers[i / 8];
      o.run();
      for (const double sum : part_of(o.dqkv, o.shape, 2))
        EXPECT_EQ(sum, numbers[0] == large ? large + 2 : 0x1p-11) << dtype;
    }
  }
}

TEST(GroupedAttentionOnGpu, RefusesRowsThatAreNotAligned) {
  LOCKSTEP_NEEDS_GPU();
  const auto launch_at = [](int64_t first, int64_t columns) {
    const DeviceArray array({1, 4, columns}, DType::bf16), y({1, 4, 8}, DType::bf16);
    const DeviceArray sums({1, 1, 4}, DType::f32);
    launch(gpu_stream(), CausalAttentionForward{.qkv = {.q = columns_of(array.view(), first, 8),
                                                        .k = columns_of(array.view(), first + 8, 8),
                                                        .v = columns_of(array.view(), first + 16, 8)},
                                                .y = y.view(),
                                                .log_sum_exp = sums.view()});
  };
  EXPECT_NO_THROW(launch_at(8, 32));
  EXPECT_THROW(launch_at(8, 36), Error);  // only the first row begins at a multiple of 16 bytes
  EXPECT_THROW(launch_at(4, 32), Error);
}

}  // namespace
}  // namespace lockstep::testing
