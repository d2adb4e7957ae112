// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "config/config.h"

namespace lockstep {

/// The numbers a key accepts.
struct NumberRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;   ///< `low` itself is refused
  bool high_open = false;  ///< `high` itself is refused
};

using ConfigField = std::variant<bool*, int64_t*, double*, std::string*>;

/// One row of the table that parsing, help, the resolved file and fingerprints are made from.
struct ConfigKey {
  std::string name;  ///< with its section: train.steps
  KeyClass key_class = KeyClass::semantic;
  std::function<ConfigField(Config&)> field = {};
  std::string unit = {};
  std::string meaning = {};
  NumberRange range = {};                 ///< of numbers
  std::vector<std::string> choices = {};  ///< of text, "name=K" with any number from 1; empty: any text

  /// "integer", "number", "true or false", "text" or the choices.
  std::string type() const;
  /// The value of this key as INI text; doubles in the shortest form that reads back the same.
  std::string text(const Config& config) const;
  /// Throws UserError naming the key if its value is none that it accepts.
  void check(const Config& config) const;
  /// Reads `value`. Throws UserError that names `origin`, the key, and what was expected.
  void assign(Config& config, const std::string& value, const std::string& origin) const;
};

/// A name for the size of a GPT.
struct ModelPreset {
  std::string name;
  int64_t n_layer = 0;
  int64_t n_head = 0;
  int64_t n_embd = 0;
};

/// GPT (Radford et al. 2018), GPT-2 (Radford et al. 2019), the smallest Gopher (Rae et al. 2021), and
/// minGPT's three small ones.
const std::vector<ModelPreset>& model_presets();

/// Every key, by section.
const std::vector<ConfigKey>& config_schema();

/// The key of that name. Throws UserError with a suggestion, naming `origin`.
const ConfigKey& find_config_key(const std::string& name, const std::string& origin);

/// " (did you mean ...?)" for a name that resembles a key, else a pointer to --help.
std::string suggest_config_key(const std::string& name);

}  // namespace lockstep
