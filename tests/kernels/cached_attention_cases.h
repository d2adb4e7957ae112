// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/values.h"
#include "lockstep/kernels/attention.h"
#include "lockstep/kernels/cached_attention.h"

namespace lockstep::testing {

/// Texts of several lengths that are read in passes. Each has a reference: attention to the whole text at
/// once.
struct CachedTexts {
  struct Place {
    int32_t text, position;
  };

  CachedTexts(const std::vector<int64_t>& lengths, const AttentionHeads& heads_of_text, int64_t size_of_head,
              DType in)
      : heads(heads_of_text), size(size_of_head), dtype(in) {
    for (const int64_t length : lengths) {
      capacity = std::max(capacity, (length + 15) / 16 * 16);
      const auto seed = static_cast<uint64_t>(qkv.size() + 1);
      qkv.push_back(Values::uniform({1, length, heads.packed() * size}, dtype, seed));
      y.emplace_back(Shape{1, length, heads.queries * size}, dtype);
      Values log_sum_exp({1, heads.queries, length}, accumulator_dtype(dtype));
      launch_on(1, CausalAttentionForward{.qkv = unpack_heads(qkv.back().view(), heads),
                                          .y = y.back().view(),
                                          .log_sum_exp = log_sum_exp.view(),
                                          .heads = heads});
    }
  }

  /// Returns passes of the first `part` tokens of each text, then the next `part` of each, and so on.
  std::vector<std::vector<Place>> passes(int64_t part) const {
    std::vector<std::vector<Place>> all;
    for (int64_t begin = 0; begin < capacity; begin += part) {
      std::vector<Place> pass;
      for (size_t text = 0; text < qkv.size(); ++text)
        for (int64_t row = begin; row < std::min(begin + part, qkv[text].shape()[1]); ++row)
          pass.push_back({static_cast<int32_t>(text), static_cast<int32_t>(row)});
      if (!pass.empty()) all.push_back(pass);
    }
    return all;
  }

  /// Returns the rows of the tokens of a pass, one after the other.
  Values rows(const std::vector<Values>& of, const std::vector<Place>& pass) const {
    const int64_t columns = of[0].shape()[2];
    Values picked({static_cast<int64_t>(pass.size()), columns}, dtype);
    int64_t i = 0;
    for (const Place& place : pass)
      for (int64_t column = 0; column < columns; ++column)
        picked.set(i++, of[static_cast<size_t>(place.text)][place.position * columns + column]);
    return picked;
  }

  static Values places(const std::vector<Place>& pass) {
    std::vector<int32_t> numbers;
    for (const Place& place : pass) numbers.insert(numbers.end(), {place.text, place.position});
    Values values = Values::of(numbers);
    Values table({static_cast<int64_t>(pass.size()), 2}, DType::i32);
    std::copy_n(values.view().as<int32_t>(), numbers.size(), table.view().as<int32_t>());
    return table;
  }

  Shape keys_shape() const { return {texts(), heads.keys, capacity / 16, size * 16}; }
  Shape values_shape() const { return {texts(), heads.keys, capacity, (size + 15) / 16 * 16}; }
  int64_t texts() const { return static_cast<int64_t>(qkv.size()); }

  AttentionHeads heads;
  int64_t size, capacity = 16;
  DType dtype;
  std::vector<Values> qkv, y;
};

}  // namespace lockstep::testing
