// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention_cases.h"

namespace lockstep::testing {
namespace {

// Ragged and whole tiles of each size that the kernels are made for, and sizes that need padding.
const std::vector<Case> cases = {
    {2, 17, 3, 32, 0.2}, {1, 200, 1, 32},      {2, 64, 2, 64},      {1, 130, 2, 64, 0.2}, {1, 70, 1, 80, 0.2},
    {1, 131, 1, 80},     {1, 96, 1, 96},       {2, 33, 2, 96, 0.1}, {1, 67, 2, 128, 0.2}, {1, 130, 1, 128},
    {2, 33, 1, 8},       {1, 129, 2, 40, 0.5}, {1, 257, 1, 64},     {1, 150, 1, 64, 0.1}};

TEST(CausalAttentionOnGpu, MatchesTheCpuInDouble) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : gpu_dtypes)
    for (const Case& c : cases) expect_matches(c, dtype);
}

TEST(CausalAttentionOnGpu, AnySizeUpTo128InFloat) {
  LOCKSTEP_NEEDS_GPU();
  for (const int64_t size : {1, 5, 33, 127}) expect_matches({2, 39, 2, size, 0.3}, DType::f32);
}

TEST(CausalAttentionOnGpu, LargeScoresStayExact) {
  LOCKSTEP_NEEDS_GPU();
  // The scores reach a few hundreds. One weight of a row is nearly 1, and no exponential may overflow.
  for (const DType dtype : gpu_dtypes) {
    OnDevice o({1, 100, 1, 64}, dtype, 8.0);
    o.run();
    const Reference reference(o);
    EXPECT_LE(relative_error(o.y, reference.y), dtype == DType::f32 ? 1e-4 : tolerance_of(dtype)) << dtype;
    EXPECT_LE(relative_error(o.log_sum_exp, reference.log_sum_exp), 1e-6) << dtype;
  }
}

TEST(CausalAttentionOnGpu, OneTokenSeesItselfOnly) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : gpu_dtypes) {
    OnDevice o({2, 1, 3, 64}, dtype);
    o.run();
    EXPECT_EQ(o.y, part_of(o.qkv, o.shape, 2)) << dtype;
    EXPECT_EQ(part_of(o.dqkv, o.shape, 2), o.dy) << dtype;
    // The gradient of the score is the difference of one sum in two orders. The sum has 64 products of order
    // one.
    for (const int64_t part : {0, 1})
      EXPECT_LE(largest_difference(part_of(o.dqkv, o.shape, part), std::vector<double>(384)), 1e-5) << dtype;
  }
}

/// Returns element i of a [rows, columns] array with a unit matrix for each head of each sample.
double unit_element(int64_t i, const Case& c) {
  const int64_t column = i % c.size, row = i / (c.heads * c.size) % c.time;
  return column == row ? 1 : 0;
}

TEST(CausalAttentionOnGpu, DropoutDrawsTheMaskOfTheCpu) {
  LOCKSTEP_NEEDS_GPU();
  // If values and dy are unit matrices, then y holds the kept weights and dv their transpose.
  for (const DType dtype : gpu_dtypes)
    for (const Case& c : {Case{2, 32, 2, 32, 0.25}, Case{2, 64, 2, 64, 0.25}, Case{1, 96, 2, 96, 0.5},
                          Case{1, 128, 1, 128, 0.1}}) {
      SCOPED_TRACE(concat(dtype, " size ", c.size));
      OnDevice o(c, dtype, 0.5);
      const int64_t columns = c.heads * c.size;
      for (int64_t i = 0; i < o.packed.elements(); ++i)
        if (i / columns % 3 == 2)
          o.qkv[static_cast<size_t>(i)] = unit_element(i / (3 * columns) * columns + i % columns, c);
      for (int64_t i = 0; i < o.plain.elements(); ++i) o.dy[static_cast<size_t>(i)] = unit_element(i, c);
      o.run();
      const Reference reference(o);
      const auto dv = part_of(o.dqkv, c, 2), expected_dv = part_of(reference.dqkv, c, 2);
      int64_t kept = 0;
      for (size_t i = 0; i < o.y.size(); ++i) {
        ASSERT_EQ(o.y[i] != 0, reference.y[i] != 0) << "weight " << i;
        ASSERT_EQ(dv[i] != 0, expected_dv[i] != 0) << "weight " << i;
        kept += o.y[i] != 0;
      }
      const double draws = static_cast<double>(c.batch * c.heads * c.time * (c.time + 1) / 2);
      EXPECT_NEAR(static_cast<double>(kept), draws * (1 - c.dropout),
                  4 * std::sqrt(draws * c.dropout * (1 - c.dropout)));
    }
}

TEST(CausalAttentionOnGpu, TheStepInGpuMemoryCounts) {
  LOCKSTEP_NEEDS_GPU();
  const DeviceArray step({7.0}, {1}, DType::i32);
  for (const DType dtype : gpu_dtypes) {
    OnDevice from_host({1, 40, 1, 64, 0.3}, dtype), from_device({1, 40, 1, 64, 0.3}, dtype);
    from_device.key.step = 1234;
    from_device.key.device_step = static_cast<const uint32_t*>(step.view().data);
    const auto expected = from_host.run();
    EXPECT_EQ(from_device.run(), expected) << dtype;
    from_device.key.device_step = nullptr;
    EXPECT_NE(from_device.run(), expected) << dtype;
  }
}

TEST(CausalAttentionOnGpu, SchedulesDoNotShowInTheBits) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : gpu_dtypes)
    for (const Case& c : {Case{2, 33, 2, 32, 0.2}, Case{1, 130, 2, 64}, Case{1, 130, 1, 64, 0.2},
                          Case{1, 70, 1, 96}, Case{1, 70, 1, 128}, Case{1, 70, 1, 128, 0.2}}) {
      OnDevice o(c, dtype);
      const auto expected = o.run();
      for_each_schedule(
          [&] { EXPECT_EQ(o.run(), expected) << dtype << " time " << c.time << " size " << c.size; });
    }
}

TEST(CausalAttentionOnGpu, ASampleGetsTheSameBitsAloneAndInABatch) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : gpu_dtypes) {
    OnDevice batch({2, 45, 2, 32, 0.1}, dtype), alone({1, 45, 2, 32, 0.1}, dtype);
    const size_t in = 45 * 192, out = 45 * 64;
    std::copy_n(batch.qkv.begin() + in, in, alone.qkv.begin());
    std::copy_n(batch.dy.begin() + out, out, alone.dy.begin());
    ++alone.key.sample;
    batch.run();
    alone.run();
    EXPECT_TRUE(std::equal(alone.y.begin(), alone.y.end(), batch.y.begin() + out)) << dtype;
    EXPECT_TRUE(std::equal(alone.dqkv.begin(), alone.dqkv.end(), batch.dqkv.begin() + in)) << dtype;
  }
}

TEST(CausalAttentionOnGpu, LaterTokensDoNotShowInTheBits) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : gpu_dtypes) {
    OnDevice o({1, 140, 1, 64}, dtype);
    o.run();
    for (const int64_t changed : {1, 31, 63, 64, 100}) {
      OnDevice other = o;
      // The values are large enough to overflow the exponential if an earlier query met them.
      for (size_t i = static_cast<size_t>(changed) * 192; i < o.qkv.size(); ++i) other.qkv[i] = 64 * o.qkv[i];
      other.run();
      for (size_t i = 0; i < static_cast<size_t>(changed) * 64; ++i)
        ASSERT_EQ(o.y[i], other.y[i]) << dtype << " element " << i;
      for (size_t i = 0; i < static_cast<size_t>(changed); ++i)
        ASSERT_EQ(o.log_sum_exp[i], other.log_sum_exp[i]) << dtype;
    }
  }
}

TEST(CausalAttentionOnGpu, ALargeScoreOfOneQueryDoesNotShowInOthers) {
  LOCKSTEP_NEEDS_GPU();
  // The query has the direction of key 5, which its warp meets in its last tile.
  constexpr size_t query = 80, key = 5;
  for (const DType dtype : gpu_dtypes)
    for (const size_t size : {64, 128}) {
      OnDevice o({1, 100, 1, static_cast<int64_t>(size)}, dtype);
      OnDevice other = o;
      for (size_t i = 0; i < size; ++i) other.qkv[3 * size * query + i] = 8 * o.qkv[(3 * key + 1) * size + i];
      o.run();
      other.run();
      for (size_t i = 0; i < o.y.size(); ++i)
        if (i / size != query) {
          ASSERT_EQ(o.y[i], other.y[i]) << dtype << " size " << size << " element " << i;
        }
    }
}

TEST(CausalAttentionOnGpu, RowsFromAQueryOnAreThoseOfAll) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : gpu_dtypes)
    for (const Case& c : {Case{2, 70, 2, 32, 0.2}, Case{1, 140, 1, 64}, Case{1, 260, 1, 128}})
      for (const int64_t first : {c.time / 2, c.time - 1}) {
        OnDevice all(c, dtype), some(c, dtype);
        all.run();
        some.run_from(first);
        for (size_t i = 0; i < all.y.size(); ++i)
          if (static_cast<int64_t>(i) / (c.heads * c.size) % c.time >= first) {
            ASSERT_EQ(some.y[i], all.y[i]) << dtype << " time " << c.time << " element " << i;
          }
        for (size_t i = 0; i < all.log_sum_exp.size(); ++i)
          if (static_cast<int64_t>(i) % c.time >= first) {
            ASSERT_EQ(some.log_sum_exp[i], all.log_sum_exp[i]) << dtype << " time " << c.time;
          }
      }
}

TEST(CausalAttentionOnGpu, WhatIsNotFiniteShows) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : gpu_dtypes)
    for (const double bad :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      OnDevice o({1, 5, 1, 32}, dtype);
      o.qkv[0] = bad;   // a query of the first row
      o.qkv[32] = bad;  // the key of the same row
      o.run();
      EXPECT_FALSE(std::isfinite(o.y[0])) << dtype << " " << bad;
    }
}

TEST(CausalAttentionOnGpu, RefusesSizesItHasNoKernelFor) {
  LOCKSTEP_NEEDS_GPU();
  const auto message = [](int64_t size, DType dtype) -> std::string {
    try {
      OnDevice({1, 4, 1, size}, dtype).run();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message(136, DType::bf16).find("not 136"), std::string::npos);
  EXPECT_NE(message(129, DType::f32).find("not 129"), std::string::npos);
  EXPECT_NE(message(20, DType::f16).find("not 20"), std::string::npos);
  EXPECT_EQ(message(24, DType::f16), "");

  const DeviceArray qkv({1, 4, 24}, DType::f64), y({1, 4, 8}, DType::f64), statistics({1, 1, 4}, DType::f64);
  EXPECT_THROW(
      launch(gpu_stream(), CausalAttentionForward{unpack_heads(qkv.view(), 1), y.view(), statistics.view()}),
      Error);
}

}  // namespace
}  // namespace lockstep::testing
