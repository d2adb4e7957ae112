// SPDX-License-Identifier: Apache-2.0
#include "kernels/cached_attention_cases.h"

namespace lockstep::testing {
namespace {

/// Returns a cache full of NaN. It stands for the content that an earlier text left there.
Values spoiled(const Shape& shape, DType dtype) {
  Values values(shape, dtype);
  for (int64_t i = 0; i < values.size(); ++i) values.set(i, NAN);
  return values;
}

void check(const CachedTexts& texts, int64_t part, int threads) {
  SCOPED_TRACE(concat(texts.dtype, ", ", texts.heads.queries, " and ", texts.heads.keys, " heads of ",
                      texts.size, ", ", part, " tokens at a time, ", threads, " threads"));
  Values keys = spoiled(texts.keys_shape(), texts.dtype), values = spoiled(texts.values_shape(), texts.dtype);
  for (const auto& pass : texts.passes(part)) {
    Values qkv = texts.rows(texts.qkv, pass), places = CachedTexts::places(pass);
    const Values expected = texts.rows(texts.y, pass);
    Values y(expected.shape(), texts.dtype);
    launch_on(threads, CachedAttention{.qkv = unpack_heads(qkv.view(), texts.heads),
                                       .keys = keys.view(),
                                       .values = values.view(),
                                       .places = places.view(),
                                       .y = y.view(),
                                       .heads = texts.heads});
    ASSERT_EQ(y, expected);
  }
}

// Full and partial panels, head sizes that are no multiple of a panel, more keys than one block of a sum has,
// a head larger than such a block, and two and four query heads for a head of keys.
TEST(CachedAttention, HasTheBitsOfAttentionToTheWholeText) {
  for (const DType dtype : float_types)
    for (const auto& [heads, size] :
         {std::pair{AttentionHeads(1), 5}, {3, 16}, {2, 64}, {1, 80}, {1, 260}, {{4, 2}, 24}, {{4, 1}, 8}}) {
      const CachedTexts texts(size == 64 ? std::vector<int64_t>{1, 270, 33} : std::vector<int64_t>{17, 40, 3},
                              heads, size, dtype);
      for (const int64_t part : {1, 7, 300})
        for (const int threads : {1, 3}) check(texts, part, threads);
    }
}

TEST(CachedAttention, RefusesWhatDoesNotFit) {
  const auto refused = [](auto change) {
    const CachedTexts texts({3, 2}, 2, 8, DType::f32);
    const auto pass = texts.passes(1)[0];
    Values qkv = texts.rows(texts.qkv, pass), keys(texts.keys_shape()), values(texts.values_shape());
    Values places = CachedTexts::places(pass), y({2, 16});
    CachedAttention kernel{.qkv = unpack_heads(qkv.view(), 2),
                           .keys = keys.view(),
                           .values = values.view(),
                           .places = places.view(),
                           .y = y.view(),
                           .heads = 2};
    change(kernel);
    EXPECT_THROW(launch_on(1, kernel), Error);
  };
  refused([](CachedAttention& k) { k.heads = 3; });
  refused([](CachedAttention& k) { k.heads = {2, 1}; });
  refused([](CachedAttention& k) { k.qkv.k.stride = 15; });
  refused([](CachedAttention& k) { k.keys.shape = {2, 2, 1, 64}; });
  refused([](CachedAttention& k) { k.values.shape = {2, 2, 16, 8}; });
  refused([](CachedAttention& k) { k.values.dtype = DType::bf16; });
  refused([](CachedAttention& k) { k.y.shape = {2, 8}; });
  refused([](CachedAttention& k) { k.places.shape = {1, 2}; });
  refused([](CachedAttention& k) { k.places.as<int32_t>()[2] = 2; });
  refused([](CachedAttention& k) { k.places.as<int32_t>()[1] = 16; });
}

}  // namespace
}  // namespace lockstep::testing
