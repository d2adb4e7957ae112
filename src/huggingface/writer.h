// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/core/dtype.h"
#include "lockstep/nn/language_model.h"
#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep {

/// Loads a model on each rank, to compute in this precision. It is that of a run or snapshot of train_gpt, or
/// of a Hugging Face folder: a path or an address (s3://, https://). All ranks call it. Throws UserError
/// naming the missing or damaged file.
std::unique_ptr<LanguageModel> load_model(const std::string& address, const World& world = World::alone(),
                                          DType precision = DType::f32);

/// A model that can generate text, with its tokenizer.
struct Writer {
  std::unique_ptr<LanguageModel> model;
  std::shared_ptr<const Tokenizer> tokenizer;  ///< on rank 0 only
};
/// Loads a model with its tokenizer, like load_model(). Throws UserError if it has none that fits.
Writer load_writer(const std::string& address, const World& world = World::alone(),
                   DType precision = DType::f32);

}  // namespace lockstep
