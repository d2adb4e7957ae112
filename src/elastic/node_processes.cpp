// SPDX-License-Identifier: Apache-2.0
#include "elastic/node_processes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "core/error.h"
#include "core/log.h"
#include "elastic/timing.h"

namespace lockstep {
namespace {

constexpr double grace_seconds = 2.0;
constexpr double patience_seconds = 10.0;

std::vector<pid_t> own_children() {
  std::vector<pid_t> children;
  std::error_code failure;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", failure)) {
    std::ifstream list(thread.path() / "children");
    for (pid_t child = 0; list >> child;) children.push_back(child);
  }
  return children;
}

}  // namespace

NodeProcesses::NodeProcesses() {
  expect(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0, "cannot adopt orphans: ", std::strerror(errno));
}

NodeProcesses::~NodeProcesses() { end_all(); }

void NodeProcesses::start(int number, const std::string& command,
                          const std::map<std::string, std::string>& environment) {
  // Without the shell between them the daemon itself ends with this process.
  const std::string line = command.starts_with("orted ") ? "exec " + command : command;
  auto process = std::make_unique<Process>(ProcessOptions{
      .command = {"sh", "-c", line}, .environment = environment, .pipe_errors = true, .without_input = true});
  commands_.push_back({.number = number, .process = std::move(process)});
}

std::vector<int> NodeProcesses::descriptors() const {
  std::vector<int> all;
  for (const Command& command : commands_) {
    all.push_back(command.process->errors());
    all.push_back(command.process->descriptor());
  }
  return all;
}

void NodeProcesses::read_output(const Command& command, const Report& report) {
  std::array<char, 65536> part;
  for (ssize_t count = 0; (count = ::read(command.process->errors(), part.data(), part.size())) > 0;)
    report({.kind = NodeMessage::Kind::output,
            .process = command.number,
            .text = std::string(part.data(), size_t(count))});
}

void NodeProcesses::attend(const Report& report) {
  for (Command& command : commands_) {
    const auto ending = command.process->ending();
    read_output(command, report);
    if (!ending) continue;
    command.has_ended = true;
    report({.kind = NodeMessage::Kind::ended, .process = command.number, .code = ending->code()});
  }
  commands_.remove_if([](const Command& command) { return command.has_ended; });
}

void NodeProcesses::end(int number) {
  for (const Command& command : commands_)
    if (command.number == number) command.process->signal(SIGTERM);
}

void NodeProcesses::end_all() {
  for (const Command& command : commands_) command.process->signal(SIGTERM);
  const auto grace = after(grace_seconds);
  const auto patience = after(patience_seconds);
  // Whoever loses its parent becomes a child of this process, so ending children until none is left gets all.
  for (auto children = own_children(); !children.empty(); children = own_children()) {
    for (const Command& command : commands_) command.process->ending();
    for (const pid_t child : children) {
      const bool is_command = std::any_of(commands_.begin(), commands_.end(), [&](const Command& command) {
        return command.process->id() == child;
      });
      if (Clock::now() >= grace) ::kill(child, SIGKILL);
      if (!is_command) ::waitpid(child, nullptr, WNOHANG);
    }
    if (Clock::now() >= patience) {
      log_error(concat(children.size(), " processes cannot be ended"));
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  commands_.clear();
}

}  // namespace lockstep
