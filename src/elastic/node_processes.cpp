// SPDX-License-Identifier: Apache-2.0
#include "elastic/node_processes.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>

#include "core/clock.h"
#include "core/error.h"
#include "core/log.h"

namespace lockstep {
namespace {

constexpr double grace_seconds = 2.0;
constexpr double give_up_seconds = 10.0;
/// Bytes of output that are read at once: more than a pipe holds, so the end of a command leaves nothing.
constexpr size_t most_output_bytes = size_t(1) << 20;

}  // namespace

NodeProcesses::NodeProcesses() {
  const bool adopts = ::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
  expect(adopts, "cannot adopt orphans: ", std::strerror(errno));
}

NodeProcesses::~NodeProcesses() { end_all(); }

void NodeProcesses::start(int number, const std::string& command,
                          const std::map<std::string, std::string>& environment) {
  // exec leaves no shell between this process and the daemon, so the daemon ends with this process.
  const std::string line = command.starts_with("orted ") ? "exec " + command : command;
  commands_.try_emplace(number, ProcessOptions{.command = {"sh", "-c", line},
                                               .environment = environment,
                                               .piped = Piped::errors,
                                               .without_input = true});
}

std::vector<int> NodeProcesses::descriptors() const {
  std::vector<int> all;
  for (const auto& [number, process] : commands_)
    all.insert(all.end(), {process.output(), process.descriptor()});
  return all;
}

void NodeProcesses::attend(const Report& report) {
  for (auto command = commands_.begin(); command != commands_.end();) {
    auto& [number, process] = *command;
    const auto ending = process.ending();
    const std::string output = process.read_output(most_output_bytes);
    if (!output.empty()) report({.kind = NodeMessage::Kind::output, .process = number, .text = output});
    if (ending) report({.kind = NodeMessage::Kind::ended, .process = number, .code = ending->code()});
    command = ending ? commands_.erase(command) : std::next(command);
  }
}

void NodeProcesses::end(int number) {
  const auto command = commands_.find(number);
  if (command != commands_.end()) command->second.signal(SIGTERM);
}

void NodeProcesses::end_all() {
  for (auto& [number, process] : commands_) process.signal(SIGTERM);
  const auto grace = after(grace_seconds);
  const auto give_up = after(give_up_seconds);
  // Orphans become children of this process. So ending children until none is left ends all processes.
  for (auto children = own_children(); !children.empty(); children = own_children()) {
    for (auto& [number, process] : commands_) process.ending();
    for (const pid_t child : children) {
      const bool is_command =
          std::ranges::any_of(commands_, [&](const auto& command) { return command.second.id() == child; });
      if (Clock::now() >= grace) ::kill(child, SIGKILL);
      if (!is_command) ::waitpid(child, nullptr, WNOHANG);
    }
    if (Clock::now() >= give_up) {
      log_error(concat(children.size(), " processes could not be ended"));
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  commands_.clear();
}

}  // namespace lockstep
