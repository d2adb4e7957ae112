// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/gelu.h"
#include "nn/transformer_block.h"

namespace lockstep {

/// GPT-2's block: layer norms, packed queries, keys and values, and a GELU between two linear layers of four
/// times the width. Its parts have the names of Hugging Face's GPT-2.
class Gpt2Block final : public TransformerBlock {
 public:
  struct Options {
    uint32_t layer = 0;
    int64_t heads = 1;
    int64_t width = 0;
    double dropout = 0.0;
    bool has_bias = true;
    Gelu activation = Gelu::tanh;
    DType dtype = DType::f32;
    bool recomputes_attention = false;
  };

  explicit Gpt2Block(const Options& options);
};

}  // namespace lockstep
