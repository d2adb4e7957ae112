// SPDX-License-Identifier: Apache-2.0
#include "config/config_file.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "core/error.h"
#include "core/text.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> shipped_folders() {
  std::vector<fs::path> folders;
  if (const char* folder = std::getenv("LOCKSTEP_CONFIG_DIR")) folders.emplace_back(folder);
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

/// The shipped configuration of that name; empty if there is none.
std::string find_shipped(const fs::path& name) {
  std::error_code ignored;
  if (name.empty() || name.has_parent_path()) return "";
  for (const fs::path& folder : shipped_folders())
    for (const fs::path& candidate : {folder / name, folder / (name.string() + ".ini")})
      if (fs::is_regular_file(candidate, ignored)) return fs::weakly_canonical(candidate).string();
  return "";
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
  require(!fs::exists(name, ignored), "--config ", name, ": not a file");
  const std::string shipped = find_shipped(name);
  if (!shipped.empty()) return shipped;
  throw UserError(concat("--config ", name, ": no such file; shipped configurations: ", shipped_names()));
}

std::string read_config_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  require(file.good() && !file.bad(), "--config ", path, ": the file cannot be read");
  return text;
}

}  // namespace lockstep
