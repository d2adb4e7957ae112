// SPDX-License-Identifier: Apache-2.0
#include "train/writer.h"

#include "core/error.h"
#include "snapshot/snapshot.h"
#include "tokenizer/char_tokenizer.h"
#include "tokenizer/load_tokenizer.h"
#include "train/language_model.h"

namespace lockstep {
namespace {

std::shared_ptr<const Tokenizer> tokenizer_of(const Snapshot& snapshot, const std::string& path) {
  if (const auto found = snapshot.artifacts.find(tokenizer_artifact); found != snapshot.artifacts.end())
    return tokenizer_from_json(found->second, path + "/state.json, tokenizer");
  const auto found = snapshot.artifacts.find(vocabulary_artifact);
  require(found != snapshot.artifacts.end(), path,
          " has no vocabulary: it is not the snapshot of a model that was trained on text");
  return std::make_shared<CharTokenizer>(found->second);
}

}  // namespace

Writer load_writer(const std::string& snapshot_path) {
  const StoredSnapshot stored = find_snapshot(snapshot_path);
  const Snapshot& snapshot = stored.state();
  const Config config = config_of_earlier_run(snapshot.configuration, snapshot_path + "/state.json");
  Writer writer;
  writer.tokenizer = tokenizer_of(snapshot, snapshot_path);
  const int64_t rows =
      config.model.vocab_size ? config.model.vocab_size : writer.tokenizer->vocabulary_size();
  writer.model = make_gpt(config, rows);
  const ParameterSpace space(writer.model->parameters());
  SpaceTensors tensors(space, nullptr, 1);
  restore(stored, World::alone(), tensors);
  return writer;
}

std::string write_text(const Gpt& model, const Tokenizer& tokenizer, const std::string& prompt,
                       GenerateOptions options) {
  options.symbols = tokenizer.vocabulary_size();
  return tokenizer.decode(generate(
      model, prompt.empty() ? tokenizer.beginning() : tokenizer.encode(prompt, "--prompt"), options));
}

}  // namespace lockstep
