// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "nn/gpt.h"

namespace lockstep {

/// A model that goes on with texts, as generate() asks it. It may keep what it has read. A text's logits must
/// not depend on the other texts, or on where it was cut, for what is written to be the same in any batch.
class TextModel {
 public:
  virtual ~TextModel() = default;

  /// How many tokens it sees at most.
  virtual int64_t context() const = 0;
  /// Before all others: so many texts at once, of at most so many tokens (<= context()) each.
  virtual void start(int64_t texts, int64_t tokens) = 0;
  /// The logits [parts, vocabulary] after the last token of each part, of different texts. What went before
  /// `past` it has been given; what was given after that is forgotten.
  virtual Tensor next_logits(std::span<const NextTokens> parts) = 0;
};

/// A GPT with a key-value cache. Keeps a reference to it.
std::unique_ptr<TextModel> make_text_model(const Gpt& model);

/// A language model: i32 ids [1, time] -> logits [1, time, vocabulary], or of the last token only.
using LanguageModel = std::function<Tensor(const Tensor& ids)>;
/// One that reads the whole text anew for each token.
std::unique_ptr<TextModel> make_text_model(LanguageModel model, int64_t context);

}  // namespace lockstep
