// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "comm/world.h"
#include "config/config.h"
#include "data/corpus.h"
#include "data/dataset.h"
#include "tokenizer/tokenizer.h"

namespace lockstep {

/// Finds what data.dataset names: `sample` (built in), `shakespeare`, a path, or an http(s), s3 or file URL.
/// Looks in $LOCKSTEP_DATA_DIR, then in a cache ($XDG_CACHE_HOME/lockstep or ~/.cache/lockstep), then
/// downloads into it. Only one rank should call this and hand the text to the others. Throws UserError that
/// says what to do.
Corpus resolve_corpus(const std::string& name);

/// What a language model is trained on: token windows, and the tokenizer that made them if there was text.
struct LanguageData {
  std::shared_ptr<const Dataset> training;
  std::shared_ptr<const Dataset> validation;
  std::shared_ptr<const Tokenizer> tokenizer;
  int64_t vocabulary_size = 0;
  std::string description;  ///< for a person
  std::string text_hash;    ///< tells one corpus from another
};

/// data.dataset as every rank sees it: rank 0 finds or downloads the text and encodes it; ranks of a host map
/// one file of ids (shared_tokens()). `model_tokenizer` is, on rank 0, what data.tokenizer = auto stands for;
/// null: char. Throws UserError naming the key.
LanguageData load_language_data(const Config& config, const World& world,
                                const std::shared_ptr<const Tokenizer>& model_tokenizer = nullptr);

/// Tells a tokenizer from others: by its file, and by the tokens that begin and end a text.
std::string tokenizer_hash(const Tokenizer& tokenizer);

}  // namespace lockstep
