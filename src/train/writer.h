// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "nn/generate.h"
#include "nn/gpt.h"
#include "tokenizer/tokenizer.h"

namespace lockstep {

/// A model that can write, from a run or snapshot of train_gpt or a Hugging Face folder. Throws UserError
/// naming what is missing.
struct Writer {
  std::unique_ptr<Gpt> model;
  std::shared_ptr<const Tokenizer> tokenizer;
};
Writer load_writer(const std::string& path);

/// The prompt continued; an empty one stands for the tokenizer's beginning().
/// Throws UserError for a prompt that the tokenizer does not know or options out of range.
std::string write_text(const Gpt& model, const Tokenizer& tokenizer, const std::string& prompt,
                       GenerateOptions options);

}  // namespace lockstep
