// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/data/dataset.h"
#include "lockstep/language/shared_text.h"
#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep {

/// The data of a language model: samples of tokens, and their tokenizer if they are from a text.
struct LanguageData {
  std::shared_ptr<const Dataset> training;
  std::shared_ptr<const Dataset> validation;
  std::shared_ptr<const Tokenizer> tokenizer;
  int64_t vocabulary_size = 0;
  std::string description;           ///< for the log
  std::string text_hash;             ///< identifies the corpus
  std::string validation_hash = {};  ///< identifies the text of data.validation; empty: there is none
  int64_t id_bytes = 0;              ///< memory of the ids in each rank; 0: they are in a file
};

/// Loads data.dataset and data.validation on every rank. Rank 0 finds or downloads the texts and encodes
/// them. The ranks of a host read one file of ids: see shared_tokens(). `model_tokenizer`, on rank 0, is the
/// tokenizer for data.tokenizer = auto; null: char. Another tokenizer must have the same tokens. Throws
/// UserError naming the key.
LanguageData load_language_data(const TextOptions& text, const TextReader& reader, const World& world,
                                const std::shared_ptr<const Tokenizer>& model_tokenizer = nullptr);

}  // namespace lockstep
