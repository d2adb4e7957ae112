// SPDX-License-Identifier: Apache-2.0
#include "lockstep/keeper/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/program/signals.h"

namespace lockstep {
namespace {

/// Returns the contents of a file of /proc as one line.
std::string line_of(const std::string& path) {
  std::string text = read_file(path).value_or("");
  std::ranges::replace(text, '\0', ' ');
  return trimmed(text);
}

/// Returns the output of a debugger about a process. Empty if it has no stack before the deadline.
std::string stacks_by_debugger(pid_t process, Clock::time_point deadline) {
  const std::string number = std::to_string(process);
  const std::vector<std::vector<std::string>> debuggers = {
      {"eu-stack", "-m", "-p", number}, {"gdb", "-batch", "-nx", "-p", number, "-ex", "thread apply all bt"}};
  for (const std::vector<std::string>& command : debuggers) {
    const double seconds = -seconds_since(deadline);
    if (seconds <= 0 || find_program(command[0]).empty()) continue;
    // Without servers of debug information. A debugger would wait for them.
    const CommandResult result = run_within(seconds, command, {{"DEBUGINFOD_URLS", ""}});
    if (result.output.find("\n#0 ") != std::string::npos) return result.output;
  }
  return "";
}

/// Returns a line for each thread of a process, with its name, its state and its place in the kernel.
std::string threads_of(pid_t process) {
  std::string text;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(concat("/proc/", process, "/task"), ignored)) {
    const auto about = [&](const char* name) { return line_of(entry.path() / name); };
    const pid_t thread = std::atoi(entry.path().filename().c_str());
    const char state = process_state(thread);
    if (state == '\0') continue;  // it has ended
    text += concat("thread ", thread, " (", about("comm"), "): state ", state, ", waits in ", about("wchan"),
                   ", system call ", about("syscall"), "\n");
  }
  return text;
}

}  // namespace

MemoryKills::MemoryKills(ControlGroups groups, std::string machine)
    : groups_(std::move(groups)), machine_(std::move(machine)), before_(count()) {}

std::string MemoryKills::reason() const {
  if (count() <= before_) return "";
  const double limit = groups_.memory_limit();
  const double machine = 1024 * number_in_file(machine_ + "/meminfo", "MemTotal:");
  return limit < machine ? "the limit of its control group is " + bytes_text(limit)
                         : "the machine ran out of memory";
}

int64_t MemoryKills::count() const {
  if (const auto kills = groups_.memory_kills()) return *kills;
  const double kills = number_in_file(machine_ + "/vmstat", "oom_kill");
  return std::isfinite(kills) ? static_cast<int64_t>(kills) : 0;
}

std::string stacks_of_group(pid_t group, double seconds) {
  const Clock::time_point deadline = after(seconds);
  std::string text;
  for (const pid_t process : processes_of(group)) {
    text += concat("process ", process, ": ", line_of(concat("/proc/", process, "/cmdline")), "\n");
    const std::string stacks = stacks_by_debugger(process, deadline);
    text += stacks.empty() ? threads_of(process) : stacks;
  }
  return text;
}

}  // namespace lockstep
