// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/nn/language_model.h"

namespace lockstep {

/// Options for generating text. Names and meanings follow Hugging Face transformers if it has the option.
struct GenerateOptions {
  int64_t tokens = 300;      ///< the maximum number of tokens to draw (max_new_tokens)
  double temperature = 0.8;  ///< 0 takes the likeliest token each time
  int64_t top_k = 0;         ///< draw from the k likeliest only; 0: from all
  double top_p = 1.0;  ///< draw from the likeliest tokens with this total probability (Holtzman et al. 2020)
  double repetition_penalty = 1.0;  ///< for tokens already in prompt or text (Keskar et al. 2019); 1: none
  uint64_t seed = 1337;
  uint32_t prompt = 0;                      ///< another number gives other draws from the same seed
  int64_t symbols = 0;                      ///< only ids below this are drawn; 0: all ids of the model
  std::optional<int32_t> end_of_text = {};  ///< ends the text and is not part of it
  std::function<bool()> go_on = [] { return true; };  ///< called before each token; false ends the text
};

/// Throws UserError for an option out of range; `where` precedes the option's name in the message.
void require_valid(const GenerateOptions& options, const std::string& where = "");

/// Draws the token that follows `text` from its logits. The token is a pure function of the arguments.
/// `position` makes the draws of a text different. A logit that is not a number counts as minus infinity.
/// Among equal logits the lower id comes first.
int32_t next_token(std::span<const double> logits, std::span<const int32_t> text,
                   const GenerateOptions& options, uint32_t position);

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

/// A text to be continued.
struct Prompt {
  std::vector<int32_t> ids;  ///< at least one
  GenerateOptions options = {};
  std::function<bool(int32_t id)> on_token = {};  ///< called with each token; returning false ends the text
};

/// The reason why a text has ended.
enum class Finish { length, end_of_text, stopped, interrupted };

struct Continuation {
  std::vector<int32_t> ids = {};  ///< without the prompt
  Finish finish = Finish::length;
};

/// Limits of a batch: texts that are read at once and tokens per pass. Results do not depend on them.
struct BatchLimits {
  int64_t texts = 8;
  int64_t tokens = 256;
};

/// Continues the prompts; the model sees the last context() tokens of each text. A continuation is a function
/// of the model and its prompt alone, not of other prompts. `on_finish` gets the index and continuation of
/// each finished text. Throws UserError for options out of range and Error for a prompt without tokens.
std::vector<Continuation> generate(TextModel& model, const std::vector<Prompt>& prompts,
                                   const BatchLimits& limits = {},
                                   const std::function<void(size_t, const Continuation&)>& on_finish = {});

/// Returns `ids` followed by the continuation of a model that sees the last `context` of them.
std::vector<int32_t> generate(const LogitsFunction& model, int64_t context, std::vector<int32_t> ids,
                              const GenerateOptions& options);
/// Returns `ids` and the continuation. While the text fits the block size, each token is read once.
std::vector<int32_t> generate(const LanguageModel& model, std::vector<int32_t> ids,
                              const GenerateOptions& options);

}  // namespace lockstep
