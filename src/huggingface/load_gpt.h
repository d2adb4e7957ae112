// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "huggingface/source_model.h"
#include "nn/gpt.h"
#include "tokenizer/tokenizer.h"

namespace lockstep {

/// What a source says of its model; no more rows than it needs to read it.
Gpt::Options options_of(const SourceModel& source);
/// The model with its values, on one rank alone. Throws UserError that names what is damaged.
std::unique_ptr<Gpt> load_gpt(const SourceModel& source);
/// The tokenizer that lies beside it or that a snapshot of ours keeps; null: there is none. On rank 0.
std::shared_ptr<const Tokenizer> tokenizer_of(const SourceModel& source);

}  // namespace lockstep
