// SPDX-License-Identifier: Apache-2.0
#include "elastic/node_host.h"

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
#include "elastic/launchers.h"

namespace lockstep {
namespace {

constexpr double grace_seconds = 2.0;
constexpr double give_up_seconds = 10.0;

}  // namespace

NodeHost::NodeHost() {
  const bool adopts = ::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
  expect(adopts, "cannot adopt orphans: ", std::strerror(errno));
}

NodeHost::~NodeHost() { end(); }

void NodeHost::start(const std::vector<std::string>& command,
                     std::map<std::string, std::string> environment) {
  end();
  folders_.emplace();
  environment.merge(folder_environment(*folders_));
  process_.emplace(ProcessOptions{.command = command,
                                  .environment = environment,
                                  .output = output_.output.input(),
                                  .errors = output_.errors.input(),
                                  .without_input = true});
}

std::vector<int> NodeHost::descriptors() const {
  return process_ ? std::vector<int>{process_->descriptor()} : std::vector<int>();
}

std::optional<Ending> NodeHost::take_ending() {
  const std::optional<Ending> ending = process_ ? process_->ending() : std::nullopt;
  if (ending) process_.reset();
  return ending;
}

void NodeHost::end() {
  if (process_) process_->signal(SIGTERM);
  const auto grace = after(grace_seconds);
  const auto give_up = after(give_up_seconds);
  // Orphans become children of this process. So ending children until none is left ends all processes.
  for (auto children = own_children(); !children.empty(); children = own_children()) {
    if (process_) process_->ending();
    for (const pid_t child : children) {
      if (Clock::now() >= grace) ::kill(child, SIGKILL);
      if (!process_ || process_->id() != child) ::waitpid(child, nullptr, WNOHANG);
    }
    if (Clock::now() >= give_up) {
      log_error(concat(children.size(), " processes could not be ended"));
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  process_.reset();
  folders_.reset();
}

}  // namespace lockstep
