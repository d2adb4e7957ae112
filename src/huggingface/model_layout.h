// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/huggingface/source_model.h"
#include "lockstep/nn/language_model.h"
#include "lockstep/snapshot/snapshot_files.h"
#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep {

/// Returns the layout that makes a snapshot of this model a folder that transformers loads: the model's own
/// and, with a tokenizer, the tokenizer's two files. The token embedding has the rows of the vocabulary, or
/// at most the tokenizer's if `cuts_to_tokenizer`.
ModelLayout layout_of(const LanguageModel& model, bool cuts_to_tokenizer, const Tokenizer* tokenizer);

/// Writes a source's model as a new Hugging Face folder with values in f32, bf16 or f16, under a temporary
/// name until it is whole. Throws UserError if the folder exists. A file has at most `most_bytes` of tensors.
void convert_model(const SourceModel& source, const std::string& folder, DType dtype,
                   int64_t most_bytes = ModelLayout().most_bytes);

}  // namespace lockstep
