// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/core/error.h"

namespace lockstep {

/// The numbers of heads in attention. Keys and values have equally many. That number divides the number of
/// query heads (grouped-query attention, Ainslie et al. 2023). Query head h reads head h / group() of the
/// keys and values.
struct AttentionHeads {
  int64_t queries = 1;
  int64_t keys = 1;

  constexpr AttentionHeads() = default;
  constexpr AttentionHeads(int64_t of_each) : queries(of_each), keys(of_each) {}
  constexpr AttentionHeads(int64_t of_queries, int64_t of_keys) : queries(of_queries), keys(of_keys) {}

  int64_t group() const { return queries / keys; }
  /// Returns the heads of packed queries, keys and values.
  int64_t packed() const { return queries + 2 * keys; }

  void check() const {
    expect(queries > 0 && keys > 0 && queries % keys == 0, "attention of ", queries, " query heads and ",
           keys, " key heads: the key heads must divide the query heads");
  }
};

}  // namespace lockstep
