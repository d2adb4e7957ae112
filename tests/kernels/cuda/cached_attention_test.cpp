// SPDX-License-Identifier: Apache-2.0
#include "kernels/cached_attention_cases.h"
#include "kernels/cuda/on_gpu.h"

namespace lockstep::testing {
namespace {

void check(const CachedTexts& texts, int64_t part) {
  SCOPED_TRACE(concat(texts.dtype, ", ", texts.heads.queries, " and ", texts.heads.keys, " heads of ",
                      texts.size, ", ", part, " at a time"));
  std::vector<Values> results;
  for_each_schedule([&] {
    OnGpu keys = OnGpu::poisoned(texts.keys_shape(), texts.dtype);
    OnGpu values = OnGpu::poisoned(texts.values_shape(), texts.dtype);
    for (const auto& pass : texts.passes(part)) {
      OnGpu qkv(texts.rows(texts.qkv, pass)), places(CachedTexts::places(pass));
      const Values expected = texts.rows(texts.y, pass);
      OnGpu y = OnGpu::poisoned(expected.shape(), texts.dtype);
      launch(gpu_stream(), CachedAttention{.qkv = unpack_heads(qkv.view(), texts.heads),
                                           .keys = keys.view(),
                                           .values = values.view(),
                                           .places = places.view(),
                                           .y = y.view(),
                                           .heads = texts.heads});
      // Values are below 2 and scores below 4 * size / sqrt(size). The tolerance covers the rounding of
      // scores, exponentials and sums. Both sides also round to the storage.
      const double tolerance = 2 * (0x1p-17 + epsilon_of(texts.dtype));
      for (int64_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(y.values()[i], expected[i], tolerance) << i;
      results.push_back(y.values());
    }
  });
  const size_t passes = texts.passes(part).size();
  for (size_t i = passes; i < results.size(); ++i) EXPECT_TRUE(results[i] == results[i % passes]);
}

TEST(CachedAttentionOnGpu, GivesWhatAttentionToTheWholeTextGives) {
  LOCKSTEP_NEEDS_GPU();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    check(CachedTexts({5, 18}, 2, 8, dtype), 4);
    check(CachedTexts({3, 20, 1}, 1, 33, dtype), 16);
    check(CachedTexts({5, 18}, {4, 2}, 8, dtype), 4);
  }
  check(CachedTexts({150}, 1, 16, DType::f32), 75);
}

}  // namespace
}  // namespace lockstep::testing
