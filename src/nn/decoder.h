// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/nn/language_model.h"
#include "lockstep/nn/layers.h"

namespace lockstep {

/// A decoder-only transformer: token table, positions, pre-norm blocks, a final norm and a head. A family of
/// models chooses the parts.
class Decoder : public LanguageModel {
 public:
  struct Sizes {
    int64_t vocabulary = 0;
    int64_t rows = 0;  ///< size of the token table; rows beyond the vocabulary are unused; 0: vocabulary
    int64_t block_size = 0;  ///< the longest context
    int64_t width = 0;
    int64_t attention_width = 0;  ///< columns of the queries of all heads
    double dropout = 0.0;         ///< of the tokens' vectors
    bool tie_weights = true;      ///< the head is the token table
    DType dtype = DType::f32;     ///< of the token table and the head
    Recompute recompute = {};
  };
  /// The parts that a family chooses.
  struct Parts {
    std::unique_ptr<Positions> positions;
    std::vector<std::unique_ptr<TransformerBlock>> blocks;
    std::unique_ptr<Norm> final_norm;
  };
  /// The names of the parts, in the order of parameters. The index of a block follows the name of the blocks.
  struct Names {
    const char *tokens, *positions, *blocks, *final_norm, *head;
  };

  Tensor operator()(const Tensor& ids, const Context& context) const override;
  Tensor loss(const Tensor& ids, const Tensor& targets, const Context& context,
              int64_t rows_at_once = 0) const override;
  Tensor token_losses(const Tensor& ids, const Tensor& targets, int64_t rows_at_once = 0) const override;
  Tensor next_logits(std::span<const NextTokens> parts, KeyValueCache& cache) const override;

  int64_t vocabulary() const override { return sizes_.vocabulary; }
  int64_t context_length() const override { return sizes_.block_size; }
  /// Counts 6 operations per weight in matmuls and 12 * attention_width * time per block for attention
  /// (Chowdhery et al. 2022, appendix B).
  double flops_per_token(int64_t time) const override;
  int64_t used_parameters() const override;
  /// Returns how many rows of the token table and the head are stored. A family adds the texts.
  ModelLayout layout(const TokenIds& ids) const override;

 protected:
  /// Throws Error for sizes that do not fit together.
  Decoder(const Sizes& sizes, Parts parts, const Names& names);

  /// Returns the rows of a stored token table: those of the tokenizer's ids.
  int64_t stored_vocabulary(const TokenIds& ids) const {
    return std::min(sizes_.vocabulary, ids.count.value_or(sizes_.vocabulary));
  }

 private:
  /// Returns the input of the head, [batch, time, width].
  Tensor hidden(const Tensor& ids, const Context& context) const;
  /// Runs the blocks. The backward recomputes what Sizes::recompute selects.
  Tensor through_blocks(const Tensor& x, const Context& context) const;
  /// Returns what is added to the logits of a dtype, or an empty tensor.
  Tensor logit_bias(DType dtype) const { return unused_rows_ ? convert(unused_rows_, dtype) : Tensor(); }
  const Tensor& head() const { return head_ ? head_->weight() : tokens_.weight(); }

  Sizes sizes_;
  Names names_;
  Embedding tokens_;
  Parts parts_;
  std::unique_ptr<Linear> head_;  ///< null if the head is the token table
  Tensor unused_rows_;            ///< added to logits: gives rows beyond the vocabulary the probability 0
};

}  // namespace lockstep
