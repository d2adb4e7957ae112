// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "config/config.h"

namespace lockstep {

/// The interval of numbers that a key accepts.
struct NumberRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;   ///< `low` itself is refused
  bool high_open = false;  ///< `high` itself is refused
};

/// The scope in which a key must have one value.
enum class KeyClass {
  semantic,    ///< fixes the bits of a run: without the value of its snapshot a resume is refused
  collective,  ///< may change at every start, but all ranks of a start must agree
  local,       ///< may differ between ranks
};

using ConfigField = std::variant<bool*, int64_t*, double*, std::string*>;

/// A configuration key. Parsing, --help, config.ini and fingerprints all read this table.
struct ConfigKey {
  std::string name;  ///< with its section: train.steps
  KeyClass key_class = KeyClass::semantic;
  std::function<ConfigField(Config&)> field = {};
  std::string unit = {};
  std::string meaning = {};
  NumberRange range = {};  ///< the accepted numbers, if the key is a number
  /// The accepted texts. K in "name=K" stands for any integer from 1. If it is empty, any text is accepted.
  std::vector<std::string> choices = {};
  std::string heading = {};  ///< the group of --help that shows it
  bool is_path = false;      ///< a leading ~/ means HOME

  /// Returns "integer", "number", "true or false", "text" or the choices.
  std::string type() const;
  /// Returns the value of this key as INI text. A double has the shortest form that reads back the same.
  std::string text(const Config& config) const;
  /// Throws UserError that names the key if the key does not accept its value.
  void check(const Config& config) const;
  /// Reads `value`. Throws UserError that names `origin`, the key, and what was expected.
  void assign(Config& config, const std::string& value, const std::string& origin) const;

 private:
  ConfigField field_of(const Config& config) const;
};

/// A named size of a GPT.
struct ModelPreset {
  std::string name;
  int64_t n_layer = 0;
  int64_t n_head = 0;
  int64_t n_embd = 0;
};

/// Returns the sizes of GPT (Radford et al. 2018), GPT-2 (Radford et al. 2019), the smallest Gopher (Rae et
/// al. 2021), and minGPT's three small models.
const std::vector<ModelPreset>& model_presets();

/// Returns every key, ordered by section.
const std::vector<ConfigKey>& config_schema();

/// Returns the key `name`; nullptr if there is none.
const ConfigKey* known_config_key(const std::string& name);
/// Returns the key `name`. Throws UserError that names `origin` and suggests a key if there is none.
const ConfigKey& find_config_key(const std::string& name, const std::string& origin);

/// Returns " (did you mean ...?)" for a misspelled key, or for a name that PyTorch, nanoGPT or Hugging Face's
/// Trainer gives a setting. Returns a hint to read --help for any other name.
std::string suggest_config_key(const std::string& name);

}  // namespace lockstep
