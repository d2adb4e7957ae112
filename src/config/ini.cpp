// SPDX-License-Identifier: Apache-2.0
#include "config/ini.h"

#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "core/environment.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"

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

}  // namespace lockstep
