// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"

#include <nlohmann/json.hpp>

namespace lockstep {

std::string Tokenizer::config_json(std::optional<int64_t> most_tokens) const {
  nlohmann::ordered_json config;
  const auto text_of = [this](int32_t id) { return decode(std::vector<int32_t>{id}); };
  if (const auto id = beginning_of_text()) config["bos_token"] = text_of(*id);
  if (const auto id = end_of_text()) config["eos_token"] = text_of(*id);
  config["clean_up_tokenization_spaces"] = false;
  if (most_tokens) config["model_max_length"] = *most_tokens;
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  return config.dump(2) + "\n";
}

}  // namespace lockstep
