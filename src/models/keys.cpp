// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/keys.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "lockstep/config/rows.h"
#include "lockstep/core/error.h"
#include "lockstep/models/family.h"

namespace lockstep {

KeyRows<ModelOptions> model_rows() {
  using O = ModelOptions;
  constexpr auto semantic = KeyClass::semantic, collective = KeyClass::collective;
  KeyRows<O> rows("model", "Model");
  KeyWords<std::string> names;
  for (const Family* family : families()) names.push_back({family->name(), family->name()});
  rows.add("family", &O::family, names, semantic, "architecture of the model; model.from has its own")
      .also_called({"architecture"});
  // A run compares the model's sizes and the hash of its contents, not this name.
  rows.add_path("from", &O::from, collective,
                "a new run starts with the sizes and weights of this model: a Hugging Face folder "
                "(a path, s3:// or https://), or a run or snapshot of this program. Empty: random weights")
      .first()
      .inherited()
      .also_called({"init_from", "model_name_or_path", "pretrained"});
  KeyWords<std::string> presets;
  for (const ModelPreset& preset : model_presets()) presets.push_back({preset.name, preset.name});
  presets.push_back({"", ""});
  // The sizes are semantic themselves, so a run does not depend on the name of its preset.
  rows.add("preset", &O::preset, presets, collective,
           "sets the family and the sizes where neither the file nor the command line sets them")
      .first()
      .also_called({"model_size", "model_type"});
  rows.add("n_layer", &O::n_layer, semantic, at_least(1), "blocks", "transformer blocks")
      .also_called({"num_hidden_layers", "num_layers"});
  rows.add("n_head", &O::n_head, semantic, at_least(1), "heads",
           "attention heads per block; n_embd is a multiple of it")
      .also_called({"num_attention_heads", "num_heads"});
  rows.add("n_embd", &O::n_embd, semantic, at_least(1), "channels", "width of the residual stream")
      .also_called({"hidden_size"});
  rows.add("vocab_size", &O::vocab_size, semantic, at_least(0), "tokens",
           "rows of the token embedding; 0: the size of the tokenizer's vocabulary");
  rows.add("vocab_multiple", &O::vocab_multiple, semantic, between(0, 1 << 20), "rows",
           "pad the embedding in memory to a multiple of this many rows (faster matmuls; padding is masked); "
           "0: 64 with model.from, else 1");
  rows.add("n_positions", &O::n_positions, semantic, at_least(0), "positions",
           "longest context of the model; 0: data.block_size");
  rows.add("dropout", &O::dropout, semantic, unit_interval, "",
           "probability of dropping an activation in training");
  rows.add("tie_weights", &O::tie_weights, semantic,
           "the output head shares the weight of the token embedding");
  for (const Family* family : families()) {
    const KeyRows<O> own = family->rows();
    for (const auto& row : own.rows())
      if (std::ranges::none_of(rows.rows(), [&](const auto& has) { return has.key.name == row.key.name; }))
        rows.add(row);
  }
  return rows;
}

bool is_of_other_family(const std::string& key, const std::string& family) {
  static const std::map<std::string, std::set<std::string>> families_of_key = [] {
    std::map<std::string, std::set<std::string>> all;
    for (const Family* one : families()) {
      const KeyRows<ModelOptions> rows = one->rows();
      for (const auto& row : rows.rows()) all[row.key.name].insert(one->name());
    }
    return all;
  }();
  const auto found = families_of_key.find(key);
  return found != families_of_key.end() && !found->second.contains(family);
}

void require_keys_of_family(const ModelOptions& options) {
  for (const Family* family : families()) {
    const KeyRows<ModelOptions> rows = family->rows();
    for (const auto& [key, field] : rows.rows()) {
      if (!is_of_other_family(key.name, options.family)) continue;
      const std::string value = field.write(options);
      require(value == key.initial, key.name, " = ", value, " is for model.family = ", family->name(),
              ", and model.family is ", options.family, ": leave the key out, or set ", key.name, " = ",
              key.initial, " if a file sets it");
    }
  }
}

std::vector<ModelPreset> model_presets() {
  std::vector<ModelPreset> all;
  for (const Family* family : families())
    for (ModelPreset preset : family->presets()) {
      preset.family = family->name();
      all.push_back(std::move(preset));
    }
  return all;
}

}  // namespace lockstep
