// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "config/config.h"
#include "huggingface/source_model.h"
#include "language/language_data.h"
#include "nn/gpt.h"
#include "train/trainer.h"

namespace lockstep {

/// Names in Snapshot::artifacts, which the snapshot of a language model stores. See also source_artifact.
inline constexpr const char* vocabulary_artifact = "vocabulary";  ///< the characters of a char tokenizer
inline constexpr const char* tokenizer_artifact = "tokenizer";    ///< tokenizer_hash() of any other tokenizer
inline constexpr const char* corpus_artifact = "corpus";

/// Opens the model of model.from and copies its sizes into the configuration. Null if the key is not set. If
/// a run that began with this model resumes, the sizes come from that run's snapshot. All ranks call it.
/// Throws UserError naming the key that contradicts the model, or the damaged file.
std::unique_ptr<SourceModel> settle_model(Config& config, const World& world);

/// Makes the model that a configuration describes, with a vocabulary of this size.
std::unique_ptr<Gpt> make_gpt(const Config& config, int64_t vocabulary_size);

/// Calls load_language_data(). With data.tokenizer = auto it uses the tokenizer of `source`, unless that is
/// null. Throws UserError if the source has no tokenizer.
LanguageData language_data(const Config& config, const World& world, const SourceModel* source);

/// Makes the trainer's task, which begins with the values of `source` if it is not null. Keeps references.
TrainingTask language_task(const Config& config, const Gpt& model, const LanguageData& data,
                           const SourceModel* source = nullptr);

/// Returns the elements of a GPT's matrices and tables: nearly all of its parameters.
double count_matrix_elements(const Config& config, int64_t vocabulary_size);

}  // namespace lockstep
