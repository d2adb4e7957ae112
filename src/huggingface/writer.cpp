// SPDX-License-Identifier: Apache-2.0
#include "lockstep/huggingface/writer.h"

#include "lockstep/core/error.h"
#include "lockstep/huggingface/source_model.h"

namespace lockstep {

std::unique_ptr<LanguageModel> load_model(const std::string& address, const World& world, DType precision) {
  return load_model(SourceModel(address, world), world, precision);
}

Writer load_writer(const std::string& address, const World& world, DType precision) {
  const SourceModel source(address, world);
  Writer writer;
  on_first_rank(world, [&] {
    writer.tokenizer = tokenizer_of(source);
    require(writer.tokenizer != nullptr, address,
            " has no vocabulary: it is neither a snapshot of a model that was trained on text, nor a folder "
            "with a tokenizer.json");
    require(writer.tokenizer->vocabulary_size() <= source.description().options.vocab_size, address,
            " has a tokenizer with ", writer.tokenizer->vocabulary_size(), " tokens, but a model with only ",
            source.description().options.vocab_size);
  });
  writer.model = load_model(source, world, precision);
  return writer;
}

}  // namespace lockstep
