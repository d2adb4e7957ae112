// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "nn/key_value_cache.h"
#include "nn/layers.h"
#include "nn/transformer_block.h"

namespace lockstep {

/// A decoder-only transformer with GPT-2's structure (Radford et al. 2019): learned positions, pre-norm
/// blocks, a final norm. Parameters carry the names of Hugging Face's GPT-2 and lie as there: weights
/// inside blocks are [in, out], the head's [out, in].
class Gpt : public Module {
 public:
  struct Options {
    int64_t vocabulary = 0;
    int64_t rows = 0;        ///< of the table of tokens: those beyond the vocabulary take no part; 0: none is
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

  /// Parameters are initialised as GPT-2's, as a function of the seed and of each parameter's place.
  /// Throws Error for sizes that do not fit together.
  Gpt(const Options& options, uint64_t seed);

  /// i32 ids [batch, time <= block_size] -> logits [batch, time, rows], of which the vocabulary's come first.
  Tensor operator()(const Tensor& ids, const Context& context) const;
  /// The mean cross entropy of the next tokens, i32 targets like ids. `rows_at_once` bounds how many rows of
  /// logits exist at a time (linear_cross_entropy); 0: all.
  Tensor loss(const Tensor& ids, const Tensor& targets, const Context& context,
              int64_t rows_at_once = 0) const;
  /// The logits [parts, rows] after the last token of each part. What is read is kept in `cache`, to go
  /// on from. On a CPU the bits of operator()'s, however texts are cut into parts and whatever goes with
  /// them.
  Tensor next_logits(std::span<const NextTokens> parts, KeyValueCache& cache) const;
  const Options& options() const { return options_; }

  /// Floating-point operations of one token's forward and backward: 6 per weight in products and
  /// 12 * width * time per layer for attention (Chowdhery et al. 2022, appendix B).
  double flops_per_token(int64_t time) const;

 private:
  /// What the head reads: [batch, time, width].
  Tensor hidden(const Tensor& ids, const Context& context) const;
  /// The blocks, of which the backward computes some again.
  Tensor through_blocks(const Tensor& x, const Context& context) const;
  Tensor bias_of_logits(DType dtype) const;
  const Tensor& head() const { return head_ ? head_->weight() : tokens_.weight(); }

  Options options_;
  Embedding tokens_;
  Embedding positions_;
  std::vector<std::unique_ptr<TransformerBlock>> blocks_;
  LayerNorm final_norm_;
  std::unique_ptr<Linear> head_;  ///< null when tied
  Tensor unused_rows_;            ///< what is added to logits so that rows beyond the vocabulary get no share
};

}  // namespace lockstep
