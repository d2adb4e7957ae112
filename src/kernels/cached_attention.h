// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lockstep/kernels/kernel.h"
#include "lockstep/kernels/query_key_value.h"

namespace lockstep {

/// Causal self-attention of tokens that continue several texts. First their keys and values are stored after
/// those of earlier tokens. Then y is computed as the rows of these tokens in CausalAttentionForward, on a
/// CPU bit for bit. Keys are stored in panels of sixteen. In a panel the sixteen values of one element are
/// contiguous, in the order in which a query reads them.
struct CachedAttention {
  static constexpr const char* name = "cached_attention";
  static constexpr int64_t panel = 16;
  static constexpr int64_t whole_panels(int64_t count) { return (count + panel - 1) / panel * panel; }

  QueryKeyValue qkv = {};  ///< [tokens, heads of each * size]
  View keys = {};          ///< [texts, key heads, capacity / panel, size * panel], like qkv
  View values = {};        ///< [texts, key heads, capacity, size rounded up to whole panels], like qkv
  View places = {};  ///< i32 [tokens, 2]: text and position of each token; earlier ones are stored or in qkv
  View y = {};       ///< like q, contiguous
  AttentionHeads heads = {};

  int64_t tokens() const { return qkv.q.shape[0]; }
  int64_t size() const { return qkv.q.shape[1] / heads.queries; }
  int64_t capacity() const { return values.shape[2]; }

  void check() const {
    qkv.check(2, heads);
    const DType dtype = qkv.dtype();
    expect(keys.dtype == dtype && values.dtype == dtype && y.dtype == dtype, "q, keys, values and y are ",
           dtype, ", ", keys.dtype, ", ", values.dtype, " and ", y.dtype, "; one type is needed");
    expect(values.shape.rank() == 4 && values.shape[1] == heads.keys && capacity() % panel == 0 &&
               values.shape[3] == whole_panels(size()),
           "values are ", values.shape, " for ", heads.keys, " heads of ", size());
    const Shape panels{values.shape[0], heads.keys, capacity() / panel, size() * panel};
    expect(keys.shape == panels, "keys are ", keys.shape, ", not ", panels);
    expect(places.dtype == DType::i32 && places.shape == Shape({tokens(), 2}), "places are ", places.dtype,
           " ", places.shape, " for ", tokens(), " tokens");
    expect(y.shape == qkv.q.shape, "y is ", y.shape, ", q is ", qkv.q.shape);
  }
};
int64_t scratch_bytes(CpuStream, const CachedAttention&);
/// Throws Error if a place is outside the keys and values.
void run(CpuStream, const CachedAttention&);
void run(CudaStream, const CachedAttention&);

}  // namespace lockstep
