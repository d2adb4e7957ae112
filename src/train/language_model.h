// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "config/config.h"
#include "huggingface/source_model.h"
#include "language/language_data.h"
#include "nn/gpt.h"
#include "train/trainer.h"

namespace lockstep {

/// What a language model's snapshot keeps besides tensors, in Snapshot::artifacts; and source_artifact.
inline constexpr const char* vocabulary_artifact = "vocabulary";  ///< of characters
inline constexpr const char* tokenizer_artifact = "tokenizer";    ///< any other: its tokenizer_hash()
inline constexpr const char* corpus_artifact = "corpus";

/// Opens what model.from names, if it names anything, and takes its sizes over into the configuration. Where
/// a run that began with it goes on, that run's snapshot tells them. All ranks call it. Throws UserError that
/// names the key which says otherwise, or the file that is damaged.
std::unique_ptr<SourceModel> settle_model(Config& config, const World& world);

/// The model that a configuration describes, over this many tokens.
std::unique_ptr<Gpt> make_gpt(const Config& config, int64_t vocabulary_size);

/// load_language_data(), where data.tokenizer = auto is the tokenizer of `source`, if there is one. UserError
/// if it has none.
LanguageData language_data(const Config& config, const World& world, const SourceModel* source);

/// A training of that model as the trainer takes it, which begins with the values of `source` if there is
/// one. Keeps references to all of them.
TrainingTask language_task(const Config& config, const Gpt& model, const LanguageData& data,
                           const SourceModel* source = nullptr);

/// The elements of a GPT's matrices and tables, which are nearly all that it has.
double count_matrix_elements(const Config& config, int64_t vocabulary_size);

}  // namespace lockstep
