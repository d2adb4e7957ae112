// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/models/gpt2/gpt.h"

namespace lockstep {

/// GPT-2's block: layer norms, packed queries, keys and values, and a GELU between two linear layers of four
/// times the width. Its parts have the names of Hugging Face's GPT-2.
class Gpt2Block final : public TransformerBlock {
 public:
  Gpt2Block(const Gpt::Options& options, uint32_t layer);
};

}  // namespace lockstep
