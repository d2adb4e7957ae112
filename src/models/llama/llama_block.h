// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/models/llama/llama.h"

namespace lockstep {

/// Llama's block: RMS norms, attention with rotary positions and grouped queries, and SwiGLU. Its parts have
/// the names of Hugging Face's Llama.
class LlamaBlock final : public TransformerBlock {
 public:
  LlamaBlock(const Llama::Options& options, uint32_t layer);
};

}  // namespace lockstep
