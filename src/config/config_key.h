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
struct Range {
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
  Range range = {};                       ///< of numbers
  std::vector<std::string> choices = {};  ///< of text; empty: any text

  /// "integer", "number", "true or false", "text" or the choices.
  std::string type() const;
  /// The value of this key as INI text; doubles in the shortest form that reads back the same.
  std::string text(const Config& config) const;
  /// Throws UserError naming the key if its value is none that it accepts.
  void check(const Config& config) const;
  /// Reads `value`. Throws UserError that names `origin`, the key, and what was expected.
  void assign(Config& config, const std::string& value, const std::string& origin) const;
};

}  // namespace lockstep
