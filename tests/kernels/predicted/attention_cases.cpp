// SPDX-License-Identifier: Apache-2.0
#include "core/error.h"
#include "kernels/attention.h"
#include "kernels/cached_attention.h"
#include "kernels/predicted/cases.h"

namespace lockstep::predicted {
namespace {

struct Sizes {
  int64_t batch, time, heads, size;
  double dropout = 0;
  double scale = 2.0;  ///< of queries, keys and values
};

std::string name_of(const Sizes& s) {
  return concat("batch ", s.batch, " time ", s.time, " heads ", s.heads, " size ", s.size,
                s.dropout > 0 ? concat(" dropout ", s.dropout) : "", s.scale > 2.0 ? " large scores" : "");
}

void add_forward(Cases& cases, DType dtype, const Sizes& s, int64_t first_query = 0) {
  const std::string name = name_of(s) + (first_query > 0 ? concat(" from query ", first_query) : "");
  add(cases, dtype, name, [=](Arrays& a) {
    const int64_t columns = s.heads * s.size;
    return CausalAttentionForward{.qkv = a.input({s.batch, s.time, 3 * columns}, dtype, s.scale),
                                  .y = a.output({s.batch, s.time, columns}, dtype),
                                  .log_sum_exp = a.output({s.batch, s.heads, s.time}, DType::f32),
                                  .heads = s.heads,
                                  .dropout = s.dropout,
                                  .key = some_key,
                                  .first_query = first_query};
  });
}

/// The backward runs on the results of a forward. So its case also covers the forward's bits.
void add_backward(Cases& cases, DType dtype, const Sizes& s) {
  add(cases, dtype, name_of(s), [=](Arrays& a) {
    const int64_t columns = s.heads * s.size;
    const CausalAttentionForward forward{.qkv = a.input({s.batch, s.time, 3 * columns}, dtype, s.scale),
                                         .y = a.output({s.batch, s.time, columns}, dtype),
                                         .log_sum_exp = a.output({s.batch, s.heads, s.time}, DType::f32),
                                         .heads = s.heads,
                                         .dropout = s.dropout,
                                         .key = some_key};
    launch(a.stream(), forward);
    return CausalAttentionBackward{.qkv = forward.qkv,
                                   .y = forward.y,
                                   .log_sum_exp = forward.log_sum_exp,
                                   .dy = a.input({s.batch, s.time, columns}, dtype),
                                   .dqkv = a.output({s.batch, s.time, 3 * columns}, dtype),
                                   .dqkv_sum = a.output({3 * columns}, DType::f32),
                                   .heads = s.heads,
                                   .dropout = s.dropout,
                                   .key = some_key};
  });
}

void add_cached(Cases& cases, DType dtype, int64_t heads, int64_t size) {
  add(cases, dtype, concat("heads ", heads, " size ", size), [=](Arrays& a) {
    constexpr int64_t texts = 2, capacity = 48;
    const int64_t padded =
        (size + CachedAttention::panel - 1) / CachedAttention::panel * CachedAttention::panel;
    return CachedAttention{
        .qkv = a.input({3, 3 * heads * size}, dtype, 2.0),
        .keys = a.updated(a.input(
            {texts, heads, capacity / CachedAttention::panel, size * CachedAttention::panel}, dtype, 2.0)),
        .values = a.updated(a.input({texts, heads, capacity, padded}, dtype, 2.0)),
        .places =
            [&] {
              View places = a.integers({0, 31, 1, 0, 0, 32});
              places.shape = {3, 2};
              return places;
            }(),
        .y = a.output({3, heads * size}, dtype),
        .heads = heads};
  });
}

}  // namespace

Cases attention_cases() {
  Cases cases;
  for (const DType dtype : float_dtypes) {
    for (const Sizes& sizes : {Sizes{1, 70, 2, 64}, Sizes{2, 33, 1, 32, 0.1}, Sizes{1, 65, 1, 128},
                               Sizes{1, 40, 1, 96, 0.25}, Sizes{1, 19, 2, 8}, Sizes{1, 140, 1, 40},
                               Sizes{1, 40, 1, 96}, Sizes{1, 40, 1, 128, 0.1}, Sizes{1, 70, 1, 64, 0.1}}) {
      add_forward(cases, dtype, sizes);
      add_backward(cases, dtype, sizes);
    }
    add_forward(cases, dtype, {1, 150, 1, 64, 0.1});
    add_forward(cases, dtype, {1, 150, 1, 64}, 140);
    // Later tiles raise the reference of the softmax, in some rows only.
    add_forward(cases, dtype, {1, 200, 1, 64, 0, 32.0});
    add_forward(cases, dtype, {1, 130, 1, 128, 0.1, 32.0});
    add_cached(cases, dtype, 2, 64);
    add_cached(cases, dtype, 1, 24);
  }
  return cases;
}

}  // namespace lockstep::predicted
