// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "huggingface/source_model.h"
#include "nn/language_model.h"
#include "tokenizer/tokenizer.h"

namespace lockstep {

/// Loads the model with its values on a single rank. Throws UserError that names a damaged file.
std::unique_ptr<LanguageModel> load_model(const SourceModel& source);
/// Returns the tokenizer next to a model or in its snapshot, or null if the source has none. For rank 0 only.
std::shared_ptr<const Tokenizer> tokenizer_of(const SourceModel& source);

/// A model that can generate text, with its tokenizer.
struct Writer {
  std::unique_ptr<LanguageModel> model;
  std::shared_ptr<const Tokenizer> tokenizer;
};
/// Loads a run or snapshot of train_gpt, or a Hugging Face folder. Throws UserError naming the missing part.
Writer load_writer(const std::string& path);

}  // namespace lockstep
