// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "config/config.h"
#include "language/language_data.h"
#include "nn/gpt.h"
#include "train/trainer.h"

namespace lockstep {

/// What a language model's snapshot keeps besides tensors, in Snapshot::artifacts.
inline constexpr const char* vocabulary_artifact = "vocabulary";  ///< of characters
inline constexpr const char* tokenizer_artifact = "tokenizer";    ///< any other, as a tokenizer.json
inline constexpr const char* corpus_artifact = "corpus";

/// The model that a configuration describes, over this many tokens.
std::unique_ptr<Gpt> make_gpt(const Config& config, int64_t vocabulary_size);

/// A training of that model as the trainer takes it. Keeps references to both.
TrainingTask language_task(const Config& config, const Gpt& model, const LanguageData& data);

/// The elements of a GPT's matrices and tables, which are nearly all that it has.
double count_matrix_elements(const Config& config, int64_t vocabulary_size);

}  // namespace lockstep
