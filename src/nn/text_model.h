// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "nn/language_model.h"

namespace lockstep {

/// A model that continues texts for generate(). It may cache tokens that it has read. A text's logits must
/// depend neither on the other texts nor on where the text was cut. Then a text is the same in any batch.
class TextModel {
 public:
  virtual ~TextModel() = default;

  /// Returns the largest number of tokens that the model sees.
  virtual int64_t context() const = 0;
  /// Prepares for `texts` texts at once, each of at most `tokens` (<= context()). generate() calls it first.
  virtual void start(int64_t texts, int64_t tokens) = 0;
  /// Returns the logits [parts, vocabulary] after the last token of each part. The parts belong to different
  /// texts. The model has read the tokens before `past`. It forgets tokens that it read after that.
  virtual Tensor next_logits(std::span<const NextTokens> parts) = 0;
};

/// Returns a language model with a key-value cache. It keeps a reference to `model`.
std::unique_ptr<TextModel> make_text_model(const LanguageModel& model);

/// A function of i32 ids [1, time] that returns the logits [1, time, vocabulary], or of the last token only.
using LogitsFunction = std::function<Tensor(const Tensor& ids)>;
/// Returns a model that reads the whole text again for each token.
std::unique_ptr<TextModel> make_text_model(LogitsFunction model, int64_t context);

}  // namespace lockstep
