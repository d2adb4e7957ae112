// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lockstep/kernels/attention_heads.h"
#include "lockstep/models/llama/rotary_frequencies.h"
#include "lockstep/nn/decoder.h"

namespace lockstep {

/// The models of Hugging Face that have Llama's structure.
enum class LlamaKind {
  llama,
  qwen2,  ///< with biases of queries, keys and values
  qwen3,  ///< with norms of each head of queries and keys
};

/// A decoder-only transformer with Llama's structure (Touvron et al. 2023): RMSNorm, rotary positions,
/// grouped queries and SwiGLU. Parameters have the names and layouts of Hugging Face's Llama, Qwen2 and
/// Qwen3. All weights are [out, in].
class Llama final : public Decoder {
 public:
  struct Options {
    LlamaKind kind = LlamaKind::llama;
    int64_t vocabulary = 0;
    int64_t rows = 0;  ///< size of the token table; rows beyond the vocabulary are unused; 0: vocabulary
    int64_t block_size = 0;  ///< the longest context
    int64_t layers = 0;
    AttentionHeads heads = {};
    int64_t head_size = 0;  ///< even
    int64_t width = 0;
    int64_t hidden = 0;       ///< width of the feed-forward layer
    double dropout = 0.0;     ///< after the embedding, on attention weights and on residual branches
    double epsilon = 1e-5;    ///< of the norms
    bool tie_weights = true;  ///< the head is the token embedding
    RopeOptions rope = {};
    DType dtype = DType::f32;
    Recompute recompute = {};

    bool has_biases() const { return kind == LlamaKind::qwen2; }
    bool has_head_norms() const { return kind == LlamaKind::qwen3; }
  };

  /// Initializes matrices with N(0, 0.02^2). For the matmuls that end a residual branch the deviation is
  /// divided by sqrt(2 * layers), as GPT-2's. Throws Error for sizes that do not fit together.
  Llama(const Options& options, uint64_t seed);

  ModelLayout layout(const TokenIds& ids) const override;
  const Options& options() const { return options_; }

 private:
  Options options_;
};

}  // namespace lockstep
