// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "nn/layers.h"
#include "nn/transformer_block.h"

namespace lockstep {

/// The next tokens of a text.
struct NextTokens {
  int64_t text = 0;               ///< number of the text, below the number of texts
  int64_t past = 0;               ///< tokens of it that a model has read before; 0 begins another text
  std::vector<int32_t> ids = {};  ///< at least one
};

/// A decoder-only transformer with GPT-2's structure (Radford et al. 2019): learned positions, pre-norm
/// blocks and a final norm. Parameters have the names and layouts of Hugging Face's GPT-2. Weights inside
/// blocks are [in, out]. The head's weight is [out, in].
class Gpt : public Module {
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

  /// Maps i32 ids [batch, time <= block_size] to logits [batch, time, rows], the vocabulary's first.
  Tensor operator()(const Tensor& ids, const Context& context) const;
  /// Returns the mean cross entropy of the next tokens; `targets` are i32 in the shape of `ids`.
  /// `rows_at_once` limits how many rows of logits exist at a time (linear_cross_entropy); 0: all.
  Tensor loss(const Tensor& ids, const Tensor& targets, const Context& context,
              int64_t rows_at_once = 0) const;
  /// Returns the logits [parts, rows] after the last token of each part. `cache` keeps the tokens' keys and
  /// values for later calls that continue the texts. On a CPU the result is bit-identical to operator(). It
  /// depends neither on the cuts of a text into parts nor on other texts in the call.
  Tensor next_logits(std::span<const NextTokens> parts, KeyValueCache& cache) const;
  const Options& options() const { return options_; }

  /// Returns the floating-point operations of one token's forward and backward. These are 6 per weight in
  /// matmuls and 12 * width * time per layer for attention (Chowdhery et al. 2022, appendix B).
  double flops_per_token(int64_t time) const;

 private:
  /// Returns the input of the head, [batch, time, width].
  Tensor hidden(const Tensor& ids, const Context& context) const;
  /// Runs the blocks. The backward recomputes what Options::recompute selects.
  Tensor through_blocks(const Tensor& x, const Context& context) const;
  const Tensor& head() const { return head_ ? head_->weight() : tokens_.weight(); }

  Options options_;
  Embedding tokens_;
  Embedding positions_;
  std::vector<std::unique_ptr<TransformerBlock>> blocks_;
  LayerNorm final_norm_;
  std::unique_ptr<Linear> head_;  ///< null when tied
  Tensor unused_rows_;            ///< added to logits: gives rows beyond the vocabulary the probability 0
};

}  // namespace lockstep
