// SPDX-License-Identifier: Apache-2.0
#include "program/process_group.h"

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include "core/error.h"

namespace lockstep {
namespace {

bool catches(pid_t process, int number) {
  std::ifstream file(concat("/proc/", process, "/status"));
  uint64_t mask = 0;
  for (std::string word; file >> word;)
    if (word == "SigCgt:") file >> std::hex >> mask;
  return (mask >> (number - 1) & 1) != 0;
}

}  // namespace

std::vector<pid_t> processes_of(pid_t group) {
  std::vector<pid_t> all;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const pid_t process = std::atoi(entry.path().filename().c_str());
    if (process > 0 && ::getpgid(process) == group) all.push_back(process);
  }
  return all;
}

bool signal_catchers(pid_t group, int number) {
  bool found = false;
  for (const pid_t process : processes_of(group))
    found |= catches(process, number) && ::kill(process, number) == 0;
  return found;
}

}  // namespace lockstep
