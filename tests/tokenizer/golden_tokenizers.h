// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/tokenizer/load_tokenizer.h"
#include "lockstep/tokenizer/splitter.h"
#include "support/temporary_directory.h"

namespace lockstep {

inline const std::string golden_tokenizers = LOCKSTEP_SOURCE_DIR "/tests/golden/tokenizers/";

inline const nlohmann::json& golden_expected() {
  static const nlohmann::json expected =
      nlohmann::json::parse(read_text(golden_tokenizers + "expected.json"));
  return expected;
}

inline const std::string golden_families = LOCKSTEP_SOURCE_DIR "/tests/golden/families/";

inline const nlohmann::json& families_expected() {
  static const nlohmann::json expected = nlohmann::json::parse(read_text(golden_families + "expected.json"));
  return expected;
}

/// Returns whether a name is that of a tokenizer of make_families.py: "family_qwen3".
inline bool is_of_family(const std::string& name) { return name.starts_with("family_"); }

inline const nlohmann::json& golden_texts(const std::string& name) {
  return is_of_family(name) ? families_expected()["texts"] : golden_expected()["texts"];
}
/// Returns what the references compute with a tokenizer: "ids" or "some".
inline const nlohmann::json& golden_values(const std::string& name, const char* what) {
  return is_of_family(name) ? families_expected()[what][name.substr(7)] : golden_expected()[what][name];
}

/// Returns llama3.json with another pattern.
inline std::string golden_json_with(SplitRule rule) {
  nlohmann::json file = nlohmann::json::parse(read_text(golden_tokenizers + "llama3.json"));
  file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = split_pattern(rule);
  return file.dump();
}

inline std::shared_ptr<const Tokenizer> golden_tokenizer(const std::string& name) {
  if (is_of_family(name)) return load_tokenizer(golden_families + name.substr(7));
  if (name == "gpt2") return load_tokenizer(golden_tokenizers + "gpt2");
  if (name == "cl100k") return load_tokenizer(golden_tokenizers + "cl100k_small.tiktoken");
  if (name == "llama3") return load_tokenizer(golden_tokenizers + "llama3.json");
  return tokenizer_from_json(golden_json_with(name == "o200k" ? SplitRule::o200k : SplitRule::qwen2), name);
}

}  // namespace lockstep
