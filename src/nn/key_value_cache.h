// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tensor/ops.h"

namespace lockstep {

/// The next tokens of a text.
struct NextTokens {
  int64_t text = 0;               ///< which: a number below that of all texts
  int64_t past = 0;               ///< how many tokens of it a model has read already; 0 begins another
  std::vector<int32_t> ids = {};  ///< at least one
};

/// What attention has read of texts, so that a model goes on without reading it again.
struct KeyValueCache {
  int64_t texts = 1;
  int64_t capacity = 0;                            ///< tokens of each
  std::map<uint32_t, AttentionCache> layers = {};  ///< by the site of a layer's attention
  Tensor places = {};                              ///< of the tokens at hand, for cached_attention()
};

}  // namespace lockstep
