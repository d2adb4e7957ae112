// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "nn/gpt.h"
#include "tokenizer/tokenizer.h"

namespace lockstep {

/// A model that can generate text, with its tokenizer.
struct Writer {
  std::unique_ptr<Gpt> model;
  std::shared_ptr<const Tokenizer> tokenizer;
};
/// Loads a run or snapshot of train_gpt, or a Hugging Face folder. Throws UserError naming the missing part.
Writer load_writer(const std::string& path);

}  // namespace lockstep
