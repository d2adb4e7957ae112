// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/models/llama/llama.h"
#include "lockstep/models/model_options.h"

namespace lockstep {

/// The options that Llama and its relatives add to those of all families. --help gives their meanings.
struct LlamaOptions {
  int64_t n_kv_head = 0;          ///< 0: as many as query heads
  int64_t head_dim = 0;           ///< 0: n_embd / n_head
  int64_t intermediate_size = 0;  ///< 0: 8 / 3 of n_embd, rounded up to a multiple of 64
  double norm_epsilon = 1e-5;
  RopeOptions rope = {};
  LlamaKind qwen = LlamaKind::qwen3;  ///< the kind of a Qwen

  int64_t key_heads(const ModelOptions& model) const { return n_kv_head > 0 ? n_kv_head : model.n_head; }
  int64_t head_size(const ModelOptions& model) const {
    return head_dim > 0 ? head_dim : model.n_embd / model.n_head;
  }
  int64_t hidden(const ModelOptions& model) const {
    return intermediate_size > 0 ? intermediate_size
                                 : (model.n_embd / 3 * 8 + model.n_embd % 3 * 8 / 3 + 63) / 64 * 64;
  }
};

inline constexpr const char* llama_name = "llama";

}  // namespace lockstep
