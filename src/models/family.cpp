// SPDX-License-Identifier: Apache-2.0
#include "lockstep/models/family.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/json/json_field.h"

namespace lockstep {

ModelDescription Family::read_config(const std::string& /*json*/, const std::string& origin) const {
  throw UserError(concat(origin, ": a ", title(), " has no config.json"));
}

std::string Family::config_json(const ModelDescription& /*model*/, DType /*dtype*/) const {
  throw UserError(concat("a ", title(), " has no config.json"));
}

void Family::check(const ModelOptions& options) const {
  require(options.n_embd % options.n_head == 0, "model.n_embd = ", options.n_embd,
          " is not a multiple of model.n_head = ", options.n_head, "; change one of them");
}

const Family& family_of(const ModelOptions& options) {
  const auto found = std::ranges::find(families(), options.family, &Family::name);
  expect(found != families().end(), "there is no family ", options.family);
  return **found;
}

ModelOptions sized(const ModelOptions& options, int64_t vocabulary, int64_t block_size) {
  ModelOptions all = options;
  all.vocab_size = vocabulary;
  all.n_positions = std::max(options.n_positions, block_size);
  return all;
}

int64_t table_rows(const ModelOptions& options) {
  const int64_t multiple = std::max<int64_t>(1, options.vocab_multiple);
  return (options.vocab_size + multiple - 1) / multiple * multiple;
}

ModelDescription read_model_config(const std::string& json, const std::string& origin) {
  const JsonField<nlohmann::json> type =
      JsonField<nlohmann::json>(json, origin, most_config_bytes)["model_type"];
  std::vector<std::string> all;
  for (const Family* family : families())
    for (const std::string& name : family->model_types()) {
      if (type.json() == name) return family->read_config(json, origin);
      all.push_back(name);
    }
  type.require_is(false, joined(all));
  return {};
}

std::string generation_config_json(const TokenIds& ids) {
  using Json = nlohmann::ordered_json;
  const Json json = {{"bos_token_id", json_or_null<Json>(ids.beginning_of_text)},
                     {"eos_token_id", json_or_null<Json>(ids.end_of_text)}};
  return json.dump(2) + "\n";
}

}  // namespace lockstep
