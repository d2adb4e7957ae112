// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "nn/language_model.h"
#include "nn/layers.h"

namespace lockstep {

/// A decoder-only transformer with GPT-2's structure (Radford et al. 2019): learned positions, pre-norm
/// blocks and a final norm. Parameters have the names and layouts of Hugging Face's GPT-2. Weights inside
/// blocks are [in, out]. The head's weight is [out, in].
class Gpt final : public LanguageModel {
 public:
  struct Options {
    int64_t vocabulary = 0;
    int64_t rows = 0;  ///< size of the token table; rows beyond the vocabulary are unused; 0: vocabulary
    int64_t block_size = 0;  ///< the longest context
    int64_t layers = 0;
    int64_t heads = 0;  ///< divides width
    int64_t width = 0;
    double dropout = 0.0;     ///< after the embedding, on attention weights and on residual branches
    bool has_bias = true;     ///< in Linear and LayerNorm
    bool tie_weights = true;  ///< the head is the token embedding
    Gelu activation = Gelu::tanh;
    DType dtype = DType::f32;
    Recompute recompute = {};
  };

  /// Initializes parameters as GPT-2 does. The values are a function of the seed and of each parameter's
  /// position. Throws Error for sizes that do not fit together.
  Gpt(const Options& options, uint64_t seed);

  Tensor operator()(const Tensor& ids, const Context& context) const override;
  Tensor loss(const Tensor& ids, const Tensor& targets, const Context& context,
              int64_t rows_at_once = 0) const override;
  Tensor next_logits(std::span<const NextTokens> parts, KeyValueCache& cache) const override;

  int64_t vocabulary() const override { return options_.vocabulary; }
  int64_t context_length() const override { return options_.block_size; }
  /// Counts 6 operations per weight in matmuls and 12 * width * time per layer for attention (Chowdhery et
  /// al. 2022, appendix B).
  double flops_per_token(int64_t time) const override;
  int64_t used_parameters() const override;
  ModelLayout layout(const TokenIds& ids) const override;
  const Options& options() const { return options_; }

 private:
  /// Returns the input of the head, [batch, time, width].
  Tensor hidden(const Tensor& ids, const Context& context) const;
  /// Runs the blocks. The backward recomputes what Options::recompute selects.
  Tensor through_blocks(const Tensor& x, const Context& context) const;
  const Tensor& head() const { return head_ ? head_->weight() : tokens_.weight(); }

  Options options_;
  Embedding tokens_;
  LearnedPositions positions_;
  std::vector<std::unique_ptr<TransformerBlock>> blocks_;
  LayerNorm final_norm_;
  std::unique_ptr<Linear> head_;  ///< null when tied
  Tensor unused_rows_;            ///< added to logits: gives rows beyond the vocabulary the probability 0
};

}  // namespace lockstep
