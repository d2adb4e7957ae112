// SPDX-License-Identifier: Apache-2.0
#include "comm/control_groups.h"

#include <cmath>
#include <fstream>
#include <limits>

namespace lockstep {

double number_in_file(const std::filesystem::path& path, const std::string& word) {
  std::ifstream file(path);
  std::string text;
  double number = 0;
  while (!word.empty() && file >> text && text != word) continue;
  return file >> number ? number : std::numeric_limits<double>::infinity();
}

ControlGroups::ControlGroups(const std::filesystem::path& process, const std::filesystem::path& root) {
  std::ifstream lines(process / "cgroup");
  for (std::string line; std::getline(lines, line);) {
    const bool is_version_2 = line.starts_with("0::");
    if (!is_version_2 && line.find(":memory:") == std::string::npos) continue;
    const std::filesystem::path outermost = is_version_2 ? root : root / "memory";
    std::filesystem::path folder = line.substr(line.rfind(':') + 1);
    for (; folder.has_relative_path(); folder = folder.parent_path())
      groups_.push_back({outermost / folder.relative_path(), is_version_2});
    groups_.push_back({outermost, is_version_2});
  }
}

double ControlGroups::memory_limit() const {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [folder, is_version_2] : groups_)
    least = std::min(least, number_in_file(folder / (is_version_2 ? "memory.max" : "memory.limit_in_bytes")));
  return least;
}

std::optional<int64_t> ControlGroups::memory_kills() const {
  for (const auto& [folder, is_version_2] : groups_) {
    const char* name = is_version_2 ? "memory.events" : "memory.oom_control";
    const double kills = number_in_file(folder / name, "oom_kill");
    if (std::isfinite(kills)) return static_cast<int64_t>(kills);
  }
  return std::nullopt;
}

}  // namespace lockstep
