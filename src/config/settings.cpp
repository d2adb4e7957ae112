// SPDX-License-Identifier: Apache-2.0
#include "config/settings.h"

#include <algorithm>
#include <sstream>

#include "core/error.h"

namespace lockstep {
namespace {

std::string section_of(const Key& key) { return key.name.substr(0, key.name.find('.')); }
std::string name_of(const Key& key) { return key.name.substr(key.name.find('.') + 1); }

/// Adds quotes where the parser would otherwise see a comment or drop blanks.
std::string quoted(const std::string& text) {
  const bool is_plain = text.empty() || (text.find_first_of("#;") == std::string::npos &&
                                         text.front() != ' ' && text.back() != ' ');
  return is_plain ? text : '"' + text + '"';
}

bool is_open(const Settings& settings, const Key& key) {
  return !settings.is_set(key.name) || (!key.open_text.empty() && settings[key.name] == key.open_text);
}

}  // namespace

Settings::Settings(const KeyTable& keys, const Layer& defaults) : keys_(&keys) {
  for (const Key& key : keys.keys()) texts_[key.name] = key.initial;
  for (const Setting& setting : defaults) replace(setting.key, setting.value);
}

void Settings::add(const Layer& layer) {
  // Steps on the command line override epochs in the file, and epochs there override steps.
  for (const Setting& setting : layer)
    if (const Key* chosen = keys_->known(setting.key); chosen && setting.value != "0")
      for (const Key& key : keys_->keys())
        if (!chosen->alternatives.empty() && key.alternatives == chosen->alternatives) texts_[key.name] = "0";
  for (const auto& [name, value, origin] : layer) {
    const Key& key = keys_->find(name, origin);
    texts_[name] = key.canonical(value, concat(origin, origin.empty() ? "" : ": ", name, ": "));
    if (key.open_text.empty() || texts_[name] != key.open_text) set_.insert(name);
  }
}

void Settings::replace(const std::string& key, const std::string& text) {
  texts_[key] = keys_->find(key, "a program").canonical(text, key + ": ");
}

const std::string& Settings::operator[](const std::string& key) const {
  return texts_.at(keys_->find(key, "a program").name);
}

std::string to_ini(const Settings& settings) {
  std::ostringstream out;
  std::string section;
  for (const Key& key : settings.keys().keys()) {
    if (section_of(key) != section) {
      out << (section.empty() ? "[" : "\n[") << section_of(key) << "]\n";
      section = section_of(key);
    }
    const std::string value = quoted(settings[key.name]);
    out << name_of(key) << (value.empty() ? " =" : " = ") << value << "\n";
  }
  return out.str();
}

Settings settings_of_earlier_run(const KeyTable& keys, const std::string& text, const std::string& name) {
  Layer understood;
  for (const Setting& setting : parse_ini(text, name)) {
    const Key* key = keys.known(setting.key);
    if (key == nullptr) continue;
    try {
      key->canonical(setting.value, "");
      understood.push_back(setting);
    } catch (const UserError&) {
      continue;
    }
  }
  Settings settings(keys);
  settings.add(understood);
  return settings;
}

Layer inherited_values(const Settings& here, const Settings& there) {
  Layer values;
  for (const Key& key : here.keys().keys())
    if (key.is_inherited && is_open(here, key) && there[key.name] != here[key.name])
      values.push_back({key.name, there[key.name], "the earlier run"});
  return values;
}

std::vector<std::string> differences(const Settings& there, const Settings& here) {
  std::vector<std::string> all;
  for (const Key& key : here.keys().keys()) {
    const std::string &was = there[key.name], &is = here[key.name];
    const bool is_left_open = !key.open_text.empty() && is == key.open_text;
    if (key.key_class == KeyClass::semantic && was != is && !is_left_open)
      all.push_back(concat(key.name, " = ", was, " there, ", is, " here"));
  }
  return all;
}

std::string agreement_lines(const Settings& settings) {
  std::string lines;
  for (const Key& key : settings.keys().keys())
    if (key.key_class != KeyClass::local) lines += concat(key.name, " = ", settings[key.name], "\n");
  return lines;
}

}  // namespace lockstep
