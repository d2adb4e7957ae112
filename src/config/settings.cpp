// SPDX-License-Identifier: Apache-2.0
#include "lockstep/config/settings.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr size_t most_bytes = 1 << 20;

std::vector<fs::path> shipped_folders() {
  std::vector<fs::path> folders;
  if (const std::string folder = environment("LOCKSTEP_CONFIG_DIR"); !folder.empty())
    folders.emplace_back(expanded_path(folder, "LOCKSTEP_CONFIG_DIR: "));
  std::error_code ignored;
  const fs::path bin = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  if (!bin.empty()) {
    folders.push_back(bin / "../../../configs");           // <source>/build/<preset>/bin
    folders.push_back(bin / "../share/lockstep/configs");  // <prefix>/bin
  }
  folders.push_back(fs::path(__FILE__).parent_path() / "../../configs");  // a build tree elsewhere
  return folders;
}

std::string shipped_names() {
  std::set<std::string> names;
  for (const fs::path& folder : shipped_folders()) {
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
      if (entry.path().extension() == ".ini") names.insert(entry.path().filename().string());
  }
  return names.empty() ? "none" : joined(names);
}

/// Returns the path of the shipped configuration `name`; empty if there is none.
std::string find_shipped(const fs::path& name) {
  std::error_code ignored;
  if (name.empty() || name.has_parent_path()) return "";
  for (const fs::path& folder : shipped_folders())
    for (const fs::path& candidate : {folder / name, folder / (name.string() + ".ini")})
      if (fs::is_regular_file(candidate, ignored)) return fs::weakly_canonical(candidate).string();
  return "";
}

std::string without_comment(const std::string& text) {
  for (size_t at = text.find_first_of("#;"); at != std::string::npos; at = text.find_first_of("#;", at + 1))
    if (at == 0 || text[at - 1] == ' ' || text[at - 1] == '\t') return trimmed(text.substr(0, at));
  return trimmed(text);
}

std::string value_of(const std::string& text, const std::string& place) {
  if (text.empty() || text[0] != '"') return without_comment(text);
  const size_t end = text.find('"', 1);
  require(end != std::string::npos, place, ": the closing quote is missing in ", shortened(text));
  require(without_comment(text.substr(end + 1)).empty(), place, ": text follows the closing quote in ",
          shortened(text));
  return text.substr(1, end - 1);
}

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

bool is_config_file(const std::string& name) {
  std::error_code ignored;
  const bool is_ini = fs::path(name).extension() == ".ini";
  return (is_ini && fs::is_regular_file(name, ignored)) || !find_shipped(name).empty();
}

std::string find_config_file(const std::string& name) {
  std::error_code ignored;
  if (fs::is_regular_file(name, ignored)) return name;
  require(!fs::exists(name, ignored), "--config ", name, ": not a file",
          fs::is_directory(name, ignored) ? "" : "; every rank reads it, so it cannot be a pipe");
  const std::string shipped = find_shipped(name);
  if (!shipped.empty()) return shipped;
  throw UserError(concat("--config ", name, ": no such file; shipped configurations: ", shipped_names()));
}

std::vector<Setting> parse_ini(const std::string& text, const std::string& file) {
  require(text.size() <= most_bytes, file, " has ", text.size(), " bytes, but a configuration has at most ",
          most_bytes);
  const std::string byte_order_mark = "\xEF\xBB\xBF";
  std::istringstream lines(text.starts_with(byte_order_mark) ? text.substr(byte_order_mark.size()) : text);
  std::vector<Setting> settings;
  std::map<std::string, int> line_of_key;
  std::string line, section;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::string place = concat(file, ":", number);
    require(line.find('\0') == std::string::npos, place,
            ": the line contains a zero byte; the file is not a text file");
    const std::string content = trimmed(line);
    const std::string bare = without_comment(content);
    if (bare.empty()) continue;
    if (bare.front() == '[') {
      section = bare.back() == ']' ? trimmed(bare.substr(1, bare.size() - 2)) : "";
      require(!section.empty(), place, ": expected a section [name], not ", shortened(bare));
      continue;
    }
    const size_t equals = content.find('=');
    require(equals != std::string::npos, place, ": expected key = value or [section], not ", shortened(bare));
    require(!section.empty(), place, ": ", shortened(bare),
            " comes before the first [section]; write the section above it");
    const std::string key = section + "." + trimmed(content.substr(0, equals));
    const auto [first, is_first] = line_of_key.emplace(key, number);
    require(is_first, place, ": ", shortened(key), " was already set in line ", first->second,
            "; keep one of the two");
    settings.push_back({key, value_of(trimmed(content.substr(equals + 1)), place), place});
  }
  return settings;
}

Settings::Settings(const KeyTable& keys, const SettingLayer& defaults) : keys_(&keys) {
  for (const Key& key : keys.keys()) texts_[key.name] = key.initial;
  for (const Setting& setting : defaults) replace(setting.key, setting.value);
}

void Settings::add(const SettingLayer& layer) {
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
  SettingLayer older, understood;
  for (const Key& key : keys.keys())
    if (!key.earlier_text.empty()) older.push_back({key.name, key.earlier_text, name});
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
  settings.add(older);
  settings.add(understood);
  return settings;
}

SettingLayer inherited_values(const Settings& here, const Settings& there) {
  SettingLayer values;
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

std::string semantic_lines(const KeyTable& keys, const std::string& ini, const std::string& file) {
  std::string lines;
  for (const Setting& setting : parse_ini(ini, file))
    if (const Key* key = keys.known(setting.key); key && key->key_class == KeyClass::semantic)
      lines += concat(setting.key, " = ", key->canonical(setting.value, file + ": "), "\n");
  return lines;
}

std::string agreement_lines(const Settings& settings) {
  std::string lines;
  for (const Key& key : settings.keys().keys())
    if (key.key_class != KeyClass::local) lines += concat(key.name, " = ", settings[key.name], "\n");
  return lines;
}

}  // namespace lockstep
