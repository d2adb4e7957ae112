// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "lockstep/config/key.h"

namespace lockstep {

/// A key with a value, and the file and line (or command line) that set it.
struct Setting {
  std::string key;  ///< with its section: train.steps
  std::string value;
  std::string origin = "command line";
};

/// Returns the path of the configuration `name`: the file itself, else the shipped configuration of this name
/// (with or without .ini). Shipped ones are searched in $LOCKSTEP_CONFIG_DIR, then in the executable's build
/// or installation, then in the source tree. Throws UserError that lists them if none has this name.
std::string find_config_file(const std::string& name);

/// Returns true if `name` is an INI file that exists, or the name of a shipped configuration.
bool is_config_file(const std::string& name);

/// Returns the lines "key = value" of an INI text, with `file` and line as their origin. Sections are in
/// brackets. A comment starts with # or ; at the beginning of a line or after a blank. A value in double
/// quotes is taken literally. Throws UserError for any other line, and for a key that is set twice.
std::vector<Setting> parse_ini(const std::string& text, const std::string& file);

/// The settings of one source, such as a file or the command line.
using SettingLayer = std::vector<Setting>;

/// The values of all keys as canonical texts, and which of them were set.
class Settings {
 public:
  /// Starts with the initial values, or with the `defaults` of a program. Keeps a reference to `keys`.
  explicit Settings(const KeyTable& keys, const SettingLayer& defaults = {});

  /// Applies a source. Its settings win over those before. Throws UserError that names key and origin for an
  /// unknown key and for a value that its key does not accept.
  void add(const SettingLayer& layer);
  /// Gives a key a value that nobody has set: a default of the program, or a value that was left open.
  void replace(const std::string& key, const std::string& text);

  const std::string& operator[](const std::string& key) const;
  bool is_set(const std::string& key) const { return set_.contains(key); }
  const KeyTable& keys() const { return *keys_; }

 private:
  const KeyTable* keys_;
  std::map<std::string, std::string> texts_;
  std::set<std::string> set_;
};

/// Returns the INI text of all keys. Reading it gives the same settings, also with another log.dir.
std::string to_ini(const Settings& settings);

/// Returns the settings of an INI text of any version of the program. Unknown keys and values are skipped.
Settings settings_of_earlier_run(const KeyTable& keys, const std::string& text, const std::string& name);

/// Returns the values that the run `there` gives to keys which `here` leaves open: those of inherited keys.
SettingLayer inherited_values(const Settings& here, const Settings& there);

/// Returns the semantic keys whose values differ: "train.seed = 5 there, 7 here". Open keys do not differ.
std::vector<std::string> differences(const Settings& there, const Settings& here);

/// Returns the lines "key = value" of those keys in an INI text that fix a run's bits, in the order of the
/// text. A key that the text lacks has no line, so later versions with more keys give the same lines. Errors
/// name `file`.
std::string semantic_lines(const KeyTable& keys, const std::string& ini, const std::string& file);

/// Returns the lines "key = value" of the keys in which all ranks must agree.
std::string agreement_lines(const Settings& settings);

}  // namespace lockstep
