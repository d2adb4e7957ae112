// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <any>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// The options of a language model. --help gives meanings, ranges and units.
struct ModelOptions {
  std::string family = "gpt2";
  std::string from;
  std::string preset;
  int64_t n_layer = 4;
  int64_t n_head = 4;
  int64_t n_embd = 128;
  int64_t vocab_size = 0;
  int64_t vocab_multiple = 0;
  int64_t n_positions = 0;
  double dropout = 0.0;
  bool tie_weights = true;
  std::map<std::string, std::any> own = {};  ///< [family]: its own options; missing: their initial values

  /// Returns the own options of a family.
  template <class Options>
  Options& own_options(const std::string& of_family) {
    std::any& options = own[of_family];
    return options.has_value() ? std::any_cast<Options&>(options) : options.emplace<Options>();
  }
  template <class Options>
  const Options& own_options(const std::string& of_family) const {
    static const Options initial;
    const auto found = own.find(of_family);
    return found == own.end() ? initial : std::any_cast<const Options&>(found->second);
  }
};

/// A named size of a model.
struct ModelPreset {
  std::string name;
  int64_t n_layer = 0;
  int64_t n_head = 0;
  int64_t n_embd = 0;
  std::vector<std::pair<std::string, std::string>> more = {};  ///< further keys and their values
  std::string family = {};                                     ///< model_presets() sets it
};

/// Returns the sizes of all families that have a name.
std::vector<ModelPreset> model_presets();

}  // namespace lockstep
