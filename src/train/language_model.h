// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "comm/world.h"
#include "config/config.h"
#include "data/corpus.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "nn/generate.h"
#include "nn/gpt.h"
#include "snapshot/snapshot.h"
#include "train/trainer.h"

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
  std::optional<CharTokenizer> tokenizer;
  int64_t vocabulary_size = 0;
  std::string description;  ///< for a person
  std::string text_hash;    ///< tells one corpus from another
};

/// data.dataset as every rank sees it: rank 0 finds or downloads the text and gives it to the others. Throws
/// UserError naming the key.
LanguageData load_language_data(const Config& config, const World& world);

/// The model that a configuration describes, over this many tokens.
std::unique_ptr<Gpt> make_gpt(const Config& config, int64_t vocabulary_size);

/// A training of that model as the trainer takes it. Keeps references to both.
TrainingTask language_task(const Config& config, const Gpt& model, const LanguageData& data);

/// The elements of a GPT's matrices and tables, which are nearly all that it has.
double count_matrix_elements(const Config& config, int64_t vocabulary_size);

/// A model that can write, from a snapshot of train_gpt. Throws UserError naming what is missing.
struct Writer {
  std::unique_ptr<Gpt> model;
  std::optional<CharTokenizer> tokenizer;
};
Writer load_writer(const std::string& snapshot_path);

/// The prompt continued; an empty one stands for a new line, or the first symbol of a vocabulary without one.
/// Throws UserError for a prompt that the tokenizer does not know or options out of range.
std::string write_text(const Gpt& model, const CharTokenizer& tokenizer, const std::string& prompt,
                       GenerateOptions options);

}  // namespace lockstep
