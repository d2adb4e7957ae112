// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <any>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

template <class Options>
class Rows;

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
  std::map<std::string, std::any> own = {};  ///< [family]: its own options; missing: their initial values

  /// Returns the own options of a family.
  template <class Options>
  Options own_options(const std::string& of_family) const {
    const auto found = own.find(of_family);
    return found == own.end() || !found->second.has_value() ? Options()
                                                            : std::any_cast<Options>(found->second);
  }
};

/// Returns the place of a family's own options.
inline std::any& own_options(ModelOptions& options, const std::string& family) { return options.own[family]; }
inline const std::any& own_options(const ModelOptions& options, const std::string& family) {
  static const std::any none;
  const auto found = options.own.find(family);
  return found == options.own.end() ? none : found->second;
}

/// A named size of a model.
struct ModelPreset {
  std::string name;
  int64_t n_layer = 0;
  int64_t n_head = 0;
  int64_t n_embd = 0;
};

/// Returns the rows that all families share. With several families the first one is model.family.
Rows<ModelOptions> model_rows();

/// Returns the rows of all families.
std::vector<std::pair<std::string, Rows<std::any>>> family_rows();

/// Returns the options of an INI text of any version of the program.
ModelOptions model_options_in(const std::string& ini, const std::string& name);

/// Returns the sizes of all families that have a name.
std::vector<ModelPreset> model_presets();

}  // namespace lockstep
