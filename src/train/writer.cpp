// SPDX-License-Identifier: Apache-2.0
#include "train/writer.h"

#include "core/error.h"
#include "huggingface/load_gpt.h"

namespace lockstep {

Writer load_writer(const std::string& path) {
  const SourceModel source(path, World::alone());
  Writer writer{.model = nullptr, .tokenizer = tokenizer_of(source)};
  require(writer.tokenizer != nullptr, path,
          " has no vocabulary: it is not the snapshot of a model that was trained on text, nor is there a "
          "tokenizer.json");
  require(writer.tokenizer->vocabulary_size() <= source.config().vocabulary, path, ": its tokenizer has ",
          writer.tokenizer->vocabulary_size(), " tokens, its model ", source.config().vocabulary);
  writer.model = load_gpt(source);
  return writer;
}

}  // namespace lockstep
