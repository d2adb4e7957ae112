// SPDX-License-Identifier: Apache-2.0
#include "train/writer.h"

#include "core/error.h"
#include "snapshot/snapshot.h"
#include "tokenizer/char_tokenizer.h"
#include "train/language_model.h"

namespace lockstep {

Writer load_writer(const std::string& snapshot_path) {
  const StoredSnapshot stored = find_snapshot(snapshot_path);
  const Snapshot& snapshot = stored.state();
  require(snapshot.artifacts.contains(vocabulary_artifact), snapshot_path,
          " has no vocabulary: it is not the snapshot of a model that was trained on text");
  const Config config = config_of_earlier_run(snapshot.configuration, snapshot_path + "/state.json");
  Writer writer;
  writer.tokenizer = std::make_shared<CharTokenizer>(snapshot.artifacts.at(vocabulary_artifact));
  const int64_t rows =
      config.model.vocab_size ? config.model.vocab_size : writer.tokenizer->vocabulary_size();
  writer.model = make_gpt(config, rows);
  const ParameterSpace space(writer.model->parameters());
  SpaceTensors tensors(space, nullptr, 1);
  restore(stored, World::alone(), tensors);
  return writer;
}

}  // namespace lockstep
