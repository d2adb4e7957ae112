// SPDX-License-Identifier: Apache-2.0
#include "tests/cluster/rank_processes.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <unistd.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Returns "cmdline" or "environ" of a process. It is empty if the process has ended.
std::string read_words(pid_t process, const char* file_name) {
  std::ifstream file("/proc/" + std::to_string(process) + "/" + file_name, std::ios::binary);
  std::string text;
  for (std::string word; std::getline(file, word, '\0');) text += word + "\n";
  return text;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<pid_t> select_processes(const std::function<bool(pid_t)>& is_wanted) {
  std::vector<pid_t> selected;
  std::error_code gone;  // a process may end during the search
  for (const auto& entry : fs::directory_iterator("/proc", gone)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto process = static_cast<pid_t>(std::stol(name));
    if (process != ::getpid() && is_wanted(process)) selected.push_back(process);
  }
  std::sort(selected.begin(), selected.end());
  return selected;
}

}  // namespace

std::vector<pid_t> find_ranks(const std::string& program, const std::string& folder) {
  return select_processes([&](pid_t process) {
    std::error_code gone;
    const fs::path executable = fs::read_symlink("/proc/" + std::to_string(process) + "/exe", gone);
    return executable == program && has(read_words(process, "cmdline"), folder);
  });
}

std::vector<pid_t> find_processes(const std::string& folder) {
  return select_processes([&](pid_t process) {
    return has(read_words(process, "cmdline"), folder) || has(read_words(process, "environ"), folder);
  });
}

}  // namespace lockstep
