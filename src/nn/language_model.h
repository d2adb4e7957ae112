// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/nn/layers.h"
#include "lockstep/nn/module.h"
#include "lockstep/parameters/model_layout.h"

namespace lockstep {

/// The next tokens of a text.
struct NextTokens {
  int64_t text = 0;               ///< number of the text, below the number of texts
  int64_t past = 0;               ///< tokens of it that a model has read before; 0 begins another text
  std::vector<int32_t> ids = {};  ///< at least one
};

/// The ids that a tokenizer uses, as the files of a model name them.
struct TokenIds {
  std::optional<int64_t> count = {};  ///< the tokenizer's ids; empty: those of the model
  std::optional<int64_t> beginning_of_text = {};
  std::optional<int64_t> end_of_text = {};
};

/// A model that predicts the next token. The engine asks it for nothing else.
class LanguageModel : public Module {
 public:
  /// Maps i32 ids [batch, time <= context_length()] to logits [batch, time, rows], the vocabulary's first.
  virtual Tensor operator()(const Tensor& ids, const Context& context) const = 0;
  /// Returns the mean cross entropy of the next tokens, or their sum * context.inverse_count; `targets` are
  /// i32 in the shape of `ids`. A target -1 does not count. `rows_at_once` limits how many rows of logits
  /// exist at a time (linear_cross_entropy); 0: all.
  virtual Tensor loss(const Tensor& ids, const Tensor& targets, const Context& context,
                      int64_t rows_at_once) const = 0;
  /// Returns the cross entropy of each next token in the shape of `targets`, without gradients and dropout; 0
  /// where the target is -1. `rows_at_once` is that of loss().
  virtual Tensor token_losses(const Tensor& ids, const Tensor& targets, int64_t rows_at_once) const = 0;
  /// Returns the logits [parts, rows] after the last token of each part. `cache` keeps the tokens' keys and
  /// values for later calls that continue the texts. On a CPU the result is bit-identical to operator(). It
  /// depends neither on the cuts of a text into parts nor on other texts in the call.
  virtual Tensor next_logits(std::span<const NextTokens> parts, KeyValueCache& cache) const = 0;

  virtual int64_t vocabulary() const = 0;
  /// Returns the longest context, in tokens.
  virtual int64_t context_length() const = 0;
  /// Returns the floating-point operations of one token's forward and backward in a context of `time` tokens.
  virtual double flops_per_token(int64_t time) const = 0;
  /// Returns the elements of parameters without those that take no part, such as padding rows.
  virtual int64_t used_parameters() const = 0;
  /// Returns the layout that makes a snapshot of this model a folder that transformers loads.
  virtual ModelLayout layout(const TokenIds& ids) const = 0;
};

}  // namespace lockstep
