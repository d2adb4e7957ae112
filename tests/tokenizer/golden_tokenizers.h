// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "support/temporary_directory.h"
#include "tokenizer/load_tokenizer.h"
#include "tokenizer/splitter.h"

namespace lockstep {

inline const std::string golden_tokenizers = LOCKSTEP_SOURCE_DIR "/tests/golden/tokenizers/";

inline const nlohmann::json& golden_expected() {
  static const nlohmann::json expected =
      nlohmann::json::parse(read_text(golden_tokenizers + "expected.json"));
  return expected;
}

/// Returns llama3.json with another pattern.
inline std::string golden_json_with(SplitRule rule) {
  nlohmann::json file = nlohmann::json::parse(read_text(golden_tokenizers + "llama3.json"));
  file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = split_pattern(rule);
  return file.dump();
}

inline std::shared_ptr<const Tokenizer> golden_tokenizer(const std::string& name) {
  if (name == "gpt2") return load_tokenizer(golden_tokenizers + "gpt2");
  if (name == "cl100k") return load_tokenizer(golden_tokenizers + "cl100k_small.tiktoken");
  if (name == "llama3") return load_tokenizer(golden_tokenizers + "llama3.json");
  return tokenizer_from_json(golden_json_with(name == "o200k" ? SplitRule::o200k : SplitRule::qwen2), name);
}

}  // namespace lockstep
