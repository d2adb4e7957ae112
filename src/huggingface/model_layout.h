// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "config/config.h"
#include "huggingface/gpt2_config.h"
#include "huggingface/source_model.h"
#include "nn/gpt.h"
#include "snapshot/snapshot_files.h"
#include "tokenizer/tokenizer.h"

namespace lockstep {

/// What transformers reads instead of our settings.
Gpt2Config gpt2_config_of(const Gpt::Options& options);

/// How a snapshot of this model is a folder that transformers loads: of the table of tokens it has the
/// vocabulary, or no more than the tokenizer's if it is cut to that; biases that the model lacks are zeros;
/// beside it lie config.json, generation_config.json and, with a tokenizer, its two files.
ModelLayout gpt2_layout(const Gpt::Options& options, bool cuts_to_tokenizer, const Tokenizer* tokenizer);

/// Writes the model of a source as a new Hugging Face folder with values in f32, bf16 or f16, beside and
/// renamed. Throws UserError where the folder exists. Files have at most so many bytes of tensors.
void convert_model(const SourceModel& source, const std::string& folder, DType dtype,
                   int64_t most_bytes = ModelLayout().most_bytes);

}  // namespace lockstep
