// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/language/text_options.h"
#include "lockstep/language/token_file.h"
#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep {

/// The run that reads the data of a language model.
struct TextReader {
  std::string model = {};  ///< address of the model that the run begins with; empty: none
  int64_t vocab_size = 0;  ///< ids of the model; 0: as many as the tokenizer has
  uint64_t seed = 0;
  int threads = 1;  ///< of each rank
};

/// A text as ids, equal on all ranks.
struct SharedText {
  TokenImage image;
  std::string description;  ///< for the log
  std::string hash;         ///< identifies the text
};

/// The texts of data.dataset and data.validation.
struct SharedTexts {
  std::shared_ptr<const Tokenizer> tokenizer;
  SharedText dataset;
  std::optional<SharedText> validation = {};
};

/// Returns the texts of a run. Rank 0 finds or downloads them, chooses their tokenizer and encodes them.
/// load_language_data() describes `model_tokenizer`. All ranks call it. Throws UserError naming the key.
SharedTexts share_texts(const TextOptions& text, const TextReader& reader, const World& world,
                        const std::shared_ptr<const Tokenizer>& model_tokenizer);

/// Returns the tokenizer's name in the configuration.
std::string tokenizer_name(const TextOptions& text);

/// Returns a hash of a tokenizer: of its JSON text and of the tokens that begin and end a text.
std::string tokenizer_hash(const Tokenizer& tokenizer);

}  // namespace lockstep
