// SPDX-License-Identifier: Apache-2.0
#include "huggingface/load_writer.h"

#include "core/error.h"
#include "huggingface/load_gpt.h"

namespace lockstep {

Writer load_writer(const std::string& path) {
  const SourceModel source(path, World::alone());
  Writer writer{.model = nullptr, .tokenizer = tokenizer_of(source)};
  require(
      writer.tokenizer != nullptr, path,
      " has no vocabulary: it is neither a snapshot of a model that was trained on text, nor a folder with a "
      "tokenizer.json");
  require(writer.tokenizer->vocabulary_size() <= source.config().vocabulary, path, " has a tokenizer with ",
          writer.tokenizer->vocabulary_size(), " tokens, but a model with only ", source.config().vocabulary);
  writer.model = load_gpt(source);
  return writer;
}

}  // namespace lockstep
