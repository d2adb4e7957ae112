// SPDX-License-Identifier: Apache-2.0
#include "huggingface/load_model.h"

#include <map>
#include <string>

#include "core/error.h"
#include "parameters/parameter_space.h"
#include "tokenizer/char_tokenizer.h"
#include "tokenizer/load_tokenizer.h"

namespace lockstep {

std::unique_ptr<LanguageModel> load_model(const SourceModel& source) {
  const ModelDescription& described = source.description();
  auto model = described.family->make(described.options, {}, 0);
  const ParameterSpace space(model->parameters());
  SpaceTensors tensors(space, nullptr, 1);
  source.load(World::alone(), tensors);
  return model;
}

std::shared_ptr<const Tokenizer> tokenizer_of(const SourceModel& source) {
  // Every snapshot of a model over characters has its vocabulary as an artifact.
  const std::map<std::string, std::string> artifacts = source.artifacts(), texts = source.texts();
  if (const auto characters = artifacts.find("vocabulary"); characters != artifacts.end())
    return std::make_shared<CharTokenizer>(characters->second);
  if (const auto json = texts.find("tokenizer.json"); json != texts.end()) {
    const auto config = texts.find("tokenizer_config.json");
    return tokenizer_from_json(json->second, concat(source.address(), "/", json->first),
                               config != texts.end() ? config->second : "",
                               concat(source.address(), "/tokenizer_config.json"));
  }
  // vocab.json and merges.txt also make a tokenizer. load_tokenizer() needs them in a local folder.
  const std::optional<std::string> folder = local_path(source.address());
  return folder && texts.contains("vocab.json") ? load_tokenizer(*folder) : nullptr;
}

Writer load_writer(const std::string& path) {
  const SourceModel source(path, World::alone());
  Writer writer{.model = nullptr, .tokenizer = tokenizer_of(source)};
  require(
      writer.tokenizer != nullptr, path,
      " has no vocabulary: it is neither a snapshot of a model that was trained on text, nor a folder with a "
      "tokenizer.json");
  require(writer.tokenizer->vocabulary_size() <= source.description().options.vocab_size, path,
          " has a tokenizer with ", writer.tokenizer->vocabulary_size(), " tokens, but a model with only ",
          source.description().options.vocab_size);
  writer.model = load_model(source);
  return writer;
}

}  // namespace lockstep
