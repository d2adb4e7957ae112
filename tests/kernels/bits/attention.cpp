// SPDX-License-Identifier: Apache-2.0
#include "lockstep/kernels/attention.h"

#include "kernels/bits/numbers.h"
#include "lockstep/kernels/cached_attention.h"

namespace lockstep::bits {
namespace {

/// Batch, positions, heads and columns of a head.
struct HeadSizes {
  int64_t batch, time;
  AttentionHeads heads;
  int64_t size;
};
/// Sizes near the widths of blocks of queries (12, 16, 24, 32) and the blocks of depth (256).
constexpr HeadSizes all_head_sizes[] = {
    {2, 1, 2, 1},   {1, 4, 3, 8},    {2, 13, 1, 16},  {1, 16, 2, 24},      {3, 17, 2, 5},
    {1, 24, 1, 32}, {2, 25, 1, 33},  {1, 32, 3, 64},  {1, 33, 1, 24},      {1, 63, 2, 40},
    {4, 70, 3, 16}, {1, 257, 1, 20}, {1, 300, 1, 64}, {2, 33, {4, 2}, 24}, {1, 17, {6, 1}, 8}};

/// The numbers of a case. Products of `tiny` numbers round to zeros of either sign.
enum class Kind { uniform, spread, tiny };

Values draw(const Shape& shape, DType dtype, uint64_t seed, Kind kind) {
  if (kind == Kind::tiny) return spread(shape, dtype, seed, -80, -60);
  return kind == Kind::spread ? spread(shape, dtype, seed, -60, 2) : uniform(shape, dtype, seed);
}

std::string text_of(const AttentionHeads& heads) {
  return heads.group() == 1 ? concat(heads.queries) : concat(heads.queries, "/", heads.keys);
}

void print_both(const HeadSizes& sizes, DType dtype, double dropout, Kind kind) {
  const auto [batch, time, heads, size] = sizes;
  const Shape wide{batch, time, heads.packed() * size}, narrow{batch, time, heads.queries * size};
  Values qkv = draw(wide, dtype, 1, kind), dy = draw(narrow, dtype, 2, kind);
  Values y(narrow, dtype), dqkv(wide, dtype),
      log_sum_exp({batch, heads.queries, time}, accumulator_dtype(dtype));
  const RandomKey key{.seed = 3, .step = 5, .sample = 7, .site = 9};
  launch_here(CausalAttentionForward{.qkv = unpack_heads(qkv.view(), heads),
                                     .y = y.view(),
                                     .log_sum_exp = log_sum_exp.view(),
                                     .heads = heads,
                                     .dropout = dropout,
                                     .key = key});
  launch_here(CausalAttentionBackward{.qkv = unpack_heads(qkv.view(), heads),
                                      .y = y.view(),
                                      .log_sum_exp = log_sum_exp.view(),
                                      .dy = dy.view(),
                                      .dqkv = unpack_heads(dqkv.view(), heads),
                                      .heads = heads,
                                      .dropout = dropout,
                                      .key = key});
  const std::string label = concat("attention ", dtype, " ", batch, "x", time, "x", text_of(heads), "x", size,
                                   dropout > 0 ? " dropout" : "",
                                   kind == Kind::tiny     ? " tiny"
                                   : kind == Kind::spread ? " spread"
                                                          : "");
  print_line(label + " forward", y, log_sum_exp);
  print_line(label + " backward", dqkv);
}

/// Prints the results for all positions of a text at once, then for one more position with the cache.
void print_cached(const HeadSizes& sizes, DType dtype, Kind kind) {
  const auto [texts, time, heads, size] = sizes;
  const int64_t panels = time / 16 + 1, padded = (size + 15) / 16 * 16;
  Values keys({texts, heads.keys, panels, size * 16}, dtype),
      values({texts, heads.keys, panels * 16, padded}, dtype);
  for (const int64_t tokens : {time, int64_t{1}}) {
    Values qkv = draw({texts * tokens, heads.packed() * size}, dtype, 4, kind);
    Values y({texts * tokens, heads.queries * size}, dtype), places({texts * tokens, 2}, DType::i32);
    for (int64_t i = 0; i < texts * tokens; ++i) {
      places.set(2 * i, static_cast<double>(i / tokens));
      places.set(2 * i + 1, static_cast<double>(tokens == 1 ? time : i % tokens));
    }
    launch_here(CachedAttention{.qkv = unpack_heads(qkv.view(), heads),
                                .keys = keys.view(),
                                .values = values.view(),
                                .places = places.view(),
                                .y = y.view(),
                                .heads = heads});
    print_line(concat("cached_attention ", dtype, " ", texts, "x", time, "x", text_of(heads), "x", size,
                      kind == Kind::tiny ? " tiny" : "", tokens == 1 ? " next" : ""),
               y);
  }
}

/// Prints the rows from a later query on. Earlier rows may hold anything.
void print_from_later_query(DType dtype) {
  constexpr int64_t heads = 2, size = 24, time = 70;
  Values qkv = uniform({2, time, 3 * heads * size}, dtype, 5);
  for (const int64_t first : {1, 12, 33, 69}) {
    Values y({2, time, heads * size}, dtype), log_sum_exp({2, heads, time}, accumulator_dtype(dtype));
    launch_here(CausalAttentionForward{.qkv = unpack_heads(qkv.view(), heads),
                                       .y = y.view(),
                                       .log_sum_exp = log_sum_exp.view(),
                                       .heads = heads,
                                       .first_query = first});
    Values asked({2, time - first, heads * size}, dtype);
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t i = 0; i < (time - first) * heads * size; ++i)
        asked.set(b * (time - first) * heads * size + i, y[(b * time + first) * heads * size + i]);
    print_line(concat("attention ", dtype, " from query ", first), asked);
  }
}

}  // namespace

void print_attention() {
  for (const DType dtype : float_types) {
    for (const HeadSizes& sizes : all_head_sizes) {
      print_both(sizes, dtype, 0.0, sizes.heads.queries > 1 ? Kind::spread : Kind::uniform);
      print_both(sizes, dtype, 0.3, Kind::uniform);
      print_both(sizes, dtype, 0.0, Kind::tiny);
    }
    for (const HeadSizes& sizes : all_head_sizes) {
      print_cached(sizes, dtype, Kind::uniform);
      print_cached(sizes, dtype, Kind::tiny);
    }
    print_from_later_query(dtype);
  }
}

}  // namespace lockstep::bits
