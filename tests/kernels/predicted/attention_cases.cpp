// SPDX-License-Identifier: Apache-2.0
#include "kernels/predicted/cases.h"
#include "lockstep/core/error.h"
#include "lockstep/kernels/attention.h"
#include "lockstep/kernels/cached_attention.h"

namespace lockstep::predicted {
namespace {

struct Sizes {
  int64_t batch, time, heads, size;
  double dropout = 0;
  double scale = 2.0;     ///< of queries, keys and values
  int64_t key_heads = 0;  ///< 0: as many as heads
  bool apart = false;     ///< queries, keys and values are three arrays

  AttentionHeads all_heads() const { return {heads, key_heads > 0 ? key_heads : heads}; }
  int64_t columns() const { return heads * size; }
  int64_t packed_columns() const { return all_heads().packed() * size; }
};

std::string name_of(const Sizes& s) {
  return concat("batch ", s.batch, " time ", s.time, " heads ", s.heads,
                s.key_heads > 0 ? concat(" over ", s.key_heads) : "", s.apart ? " apart" : "", " size ",
                s.size, s.dropout > 0 ? concat(" dropout ", s.dropout) : "",
                s.scale > 2.0 ? " large scores" : "");
}

/// Makes queries, keys and values with make(shape), in one array or in three.
template <class Make>
QueryKeyValue make_operands(const Sizes& s, const Make& make) {
  if (!s.apart) return unpack_heads(make(Shape{s.batch, s.time, s.packed_columns()}), s.all_heads());
  const Shape queries{s.batch, s.time, s.columns()}, keys = queries.with_last(s.all_heads().keys * s.size);
  return {.q = make(queries), .k = make(keys), .v = make(keys)};
}

CausalAttentionForward make_forward(Arrays& a, DType dtype, const Sizes& s) {
  return {.qkv = make_operands(s, [&](const Shape& shape) { return a.input(shape, dtype, s.scale); }),
          .y = a.output({s.batch, s.time, s.columns()}, dtype),
          .log_sum_exp = a.output({s.batch, s.heads, s.time}, DType::f32),
          .heads = s.all_heads(),
          .dropout = s.dropout,
          .key = some_key};
}

void add_forward(Cases& cases, DType dtype, const Sizes& s, int64_t first_query = 0) {
  const std::string name = name_of(s) + (first_query > 0 ? concat(" from query ", first_query) : "");
  add(cases, dtype, name, [=](Arrays& a) {
    CausalAttentionForward forward = make_forward(a, dtype, s);
    forward.first_query = first_query;
    return forward;
  });
}

/// The backward runs on the results of a forward. So its case also covers the forward's bits.
void add_backward(Cases& cases, DType dtype, const Sizes& s) {
  add(cases, dtype, name_of(s), [=](Arrays& a) {
    const CausalAttentionForward forward = make_forward(a, dtype, s);
    launch(a.stream(), forward);
    const View dy = a.input({s.batch, s.time, s.columns()}, dtype);
    return CausalAttentionBackward{
        .qkv = forward.qkv,
        .y = forward.y,
        .log_sum_exp = forward.log_sum_exp,
        .dy = dy,
        .dqkv = make_operands(s, [&](const Shape& shape) { return a.output(shape, dtype); }),
        .dqkv_sum = s.apart ? View{} : a.output({s.packed_columns()}, DType::f32),
        .heads = forward.heads,
        .dropout = s.dropout,
        .key = some_key};
  });
}

void add_cached(Cases& cases, DType dtype, const AttentionHeads& heads, int64_t size) {
  const std::string grouped = heads.group() > 1 ? concat(" over ", heads.keys, " apart") : "";
  add(cases, dtype, concat("heads ", heads.queries, grouped, " size ", size), [=](Arrays& a) {
    constexpr int64_t texts = 2, capacity = 48, panel = CachedAttention::panel;
    const int64_t padded = CachedAttention::whole_panels(size);
    const Sizes sizes{1, 3, heads.queries, size, 0, 2.0, heads.keys, heads.group() > 1};
    QueryKeyValue qkv = make_operands(sizes, [&](const Shape& shape) { return a.input(shape, dtype, 2.0); });
    for (ColumnsView* operand : {&qkv.q, &qkv.k, &qkv.v}) operand->shape = {3, operand->shape[2]};
    return CachedAttention{
        .qkv = qkv,
        .keys = a.updated(a.input({texts, heads.keys, capacity / panel, size * panel}, dtype, 2.0)),
        .values = a.updated(a.input({texts, heads.keys, capacity, padded}, dtype, 2.0)),
        .places =
            [&] {
              View places = a.integers({0, 31, 1, 0, 0, 32});
              places.shape = {3, 2};
              return places;
            }(),
        .y = a.output({3, heads.queries * size}, dtype),
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
    // Groups of query heads, with sizes for each kernel of keys. Every second case has three arrays.
    for (const Sizes& sizes : {Sizes{2, 33, 4, 32, 0.1, 2.0, 2, true}, Sizes{1, 70, 4, 24, 0, 2.0, 1},
                               Sizes{1, 70, 4, 64, 0, 2.0, 2, true}, Sizes{1, 70, 2, 64, 0.1, 2.0, 1},
                               Sizes{1, 40, 2, 96, 0, 2.0, 1, true}, Sizes{1, 33, 2, 96, 0.25, 2.0, 1},
                               Sizes{1, 65, 2, 128, 0, 2.0, 1, true}, Sizes{1, 33, 3, 128, 0.1, 2.0, 1}})
      add_backward(cases, dtype, sizes);
    add_forward(cases, dtype, {1, 150, 4, 64, 0.1, 2.0, 2, true}, 100);
    add_forward(cases, dtype, {1, 150, 1, 64, 0.1});
    add_forward(cases, dtype, {1, 150, 1, 64}, 140);
    // Later tiles raise the reference of the softmax, in some rows only.
    add_forward(cases, dtype, {1, 200, 1, 64, 0, 32.0});
    add_forward(cases, dtype, {1, 130, 1, 128, 0.1, 32.0});
    add_cached(cases, dtype, 2, 64);
    add_cached(cases, dtype, 1, 24);
    add_cached(cases, dtype, {4, 2}, 24);
  }
  return cases;
}

}  // namespace lockstep::predicted
