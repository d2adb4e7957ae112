// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/data/bytes.h"
#include "lockstep/data/examples.h"
#include "lockstep/nn/language_model.h"
#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep {

/// A token that counts.
struct ScoredToken {
  std::optional<int64_t> example = {};  ///< number of its example from 0, if the text has examples
  int64_t position = 0;                 ///< its index in the example, or in the text
  int32_t id = 0;
  double log_probability = 0.0;  ///< natural logarithm of the probability that the model gave it
};

/// How well a model predicts a text.
struct TextScore {
  double log_probability = 0.0;  ///< sum over the tokens that count
  int64_t tokens = 0;            ///< tokens that count
  int64_t bytes = 0;             ///< their bytes; a special token has none

  /// Returns the mean cross entropy of a token, in nats.
  double loss() const { return -log_probability / static_cast<double>(tokens); }
  double perplexity() const;
  double bits_per_byte() const;
};

/// A text as ids, with the marks of its examples, if it has any.
struct EncodedText {
  std::string name;  ///< for errors
  Tokens tokens;
  std::optional<Marks> examples = {};
};

struct ScoreOptions {
  int64_t context = 0;               ///< tokens of a window; 0: the model's context
  int64_t tokens_at_once = 1 << 11;  ///< a pass has at most so many tokens, or one window
};

/// Scores a text in windows without overlap, of which the last one may be short. All tokens count except the
/// first of a window. Each example is a text of its own, and tokens of its prompt do not count. Ranks take
/// turns; on a CPU the result depends neither on them nor on tokens_at_once. All ranks call it. `on_token`
/// gets the tokens in order. Throws UserError if no token counts or the model lacks an id.
TextScore score_text(const World& world, const LanguageModel& model, const Tokenizer& tokenizer,
                     const EncodedText& text, const ScoreOptions& options = {},
                     const std::function<void(const ScoredToken&)>& on_token = {});

/// Returns JSON without line end: file, loss, perplexity, bits_per_byte, tokens, bytes. A number that is not
/// finite is null.
std::string to_json_line(const std::string& file, const TextScore& score);
/// Returns JSON without line end: file, example (if there is one), position, id, token, logprob. Bytes of a
/// token that are not UTF-8 become U+FFFD.
std::string to_json_line(const std::string& file, const ScoredToken& token, const Tokenizer& tokenizer);

}  // namespace lockstep
