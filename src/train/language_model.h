// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "huggingface/source_model.h"
#include "job/keys.h"
#include "language/language_data.h"
#include "nn/language_model.h"

namespace lockstep {

/// Opens the model of model.from; null if the key is not set. If a run that began with this model resumes,
/// that run's snapshot describes it. All ranks call it. Throws UserError naming the damaged file.
std::unique_ptr<SourceModel> open_source(const Job& job, const World& world);

/// Returns the job with the sizes of `source`, unless that is null. `given`: what the user has set. Throws
/// UserError naming the key that contradicts the model.
Job with_sizes_of(const SourceModel* source, const Job& job, const Settings& given);

/// Makes the model of a job, with a vocabulary of this size.
std::unique_ptr<LanguageModel> make_model(const Job& job, int64_t vocabulary_size);

/// Calls load_language_data(). With data.tokenizer = auto it uses the tokenizer of `source`, unless that is
/// null. Throws UserError if the source has no tokenizer.
LanguageData language_data(const Job& job, const World& world, const SourceModel* source);

}  // namespace lockstep
