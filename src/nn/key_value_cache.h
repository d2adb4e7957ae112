// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tensor/ops.h"

namespace lockstep {

/// The next tokens of a text.
struct NextTokens {
  int64_t text = 0;               ///< number of the text, below the number of texts
  int64_t past = 0;               ///< tokens of it that a model has read before; 0 begins another text
  std::vector<int32_t> ids = {};  ///< at least one
};

/// Keys and values of attention, with which a model continues texts without reading them again.
struct KeyValueCache {
  int64_t texts = 1;
  int64_t capacity = 0;                            ///< tokens per text
  std::map<uint32_t, AttentionCache> layers = {};  ///< key: the site of a layer's attention
  Tensor places = {};                              ///< current tokens, as in cached_attention()
};

}  // namespace lockstep
