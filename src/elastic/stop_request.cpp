// SPDX-License-Identifier: Apache-2.0
#include "elastic/stop_request.h"

#include <csignal>

#include "core/error.h"
#include "core/log.h"

namespace lockstep {
namespace {

/// Under nohup: whoever reads signals would get one that is ignored.
bool is_ignored(int number) {
  struct sigaction now {};
  return ::sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

StopRequest::StopRequest()
    : signals_(is_ignored(SIGHUP) ? std::initializer_list<int>{SIGTERM, SIGUSR1, SIGINT}
                                  : std::initializer_list<int>{SIGTERM, SIGUSR1, SIGINT, SIGHUP}) {}

void StopRequest::hear() {
  while (const auto number = signals_.next()) {
    // Batch systems repeat themselves, with one signal and another. Only a person is impatient.
    interruptions_ += *number == SIGINT;
    ask();
  }
}

void StopRequest::ask(const std::string& where) {
  if (asked_) return;
  asked_ = Clock::now();
  if (!where.empty()) log_info(concat("lockrun: ", where, " was asked to stop the run"));
}

}  // namespace lockstep
