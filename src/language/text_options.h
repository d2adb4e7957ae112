// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace lockstep {

/// The data that have a name of their own.
enum class NamedText { shakespeare, sample, random_tokens };

/// A tokenizer without a file: one token per character, or that of the model that the run begins with. A run
/// without such a model then uses characters.
enum class NamedTokenizer { of_model, characters };

/// The tokens of an example that count in the loss.
enum class LossOn { answer, all };

/// The mean that is the loss of a step: over all its targets that count, or over the means of its
/// micro-batches.
enum class LossMean { tokens, micro_batch };

/// The template of conversations: that of the tokenizer's files, or one that is named.
enum class ChatFormat { of_tokenizer, llama3, chatml };

/// The text or examples that a language model is trained on. --help gives meanings, ranges and units.
struct TextOptions {
  std::variant<NamedText, std::string> dataset = NamedText::shakespeare;
  std::variant<NamedTokenizer, std::string> tokenizer = NamedTokenizer::of_model;
  int64_t block_size = 64;
  double train_split = 0.9;
  std::variant<NamedText, std::string> validation = std::string();  ///< empty: the rest of the split
  std::string columns = {};
  ChatFormat chat_template = ChatFormat::of_tokenizer;
  LossOn loss_on = LossOn::answer;
  LossMean loss_mean = LossMean::tokens;
  bool packing = true;
};

/// Returns whether the data are those of a name.
inline bool is_named(const TextOptions& text, NamedText name) {
  const auto* named = std::get_if<NamedText>(&text.dataset);
  return named != nullptr && *named == name;
}

/// Returns whether a text of its own validates.
inline bool has_validation_text(const TextOptions& text) {
  const auto* path = std::get_if<std::string>(&text.validation);
  return path == nullptr || !path->empty();
}

}  // namespace lockstep
