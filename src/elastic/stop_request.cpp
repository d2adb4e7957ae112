// SPDX-License-Identifier: Apache-2.0
#include "elastic/stop_request.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <sys/signalfd.h>

#include "core/error.h"
#include "core/log.h"

namespace lockstep {
namespace {

/// Returns whether a signal is ignored, as SIGHUP is under nohup. A signalfd would still return it.
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
    // Batch systems repeat requests with several signals. Only a repeated SIGINT, from a user, ends at once.
    interruptions_ += *number == SIGINT;
    ask();
  }
}

void StopRequest::ask(const std::string& where) {
  if (asked_) return;
  asked_ = Clock::now();
  if (!where.empty()) log_info(concat("lockrun: ", where, " was asked to stop the run"));
}

Signals::Signals(std::initializer_list<int> numbers) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : numbers) sigaddset(&set, number);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  descriptor_ = Descriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  expect(static_cast<bool>(descriptor_), "cannot read signals: ", std::strerror(errno));
}

std::optional<int> Signals::next() {
  signalfd_siginfo information{};
  if (::read(descriptor_.get(), &information, sizeof information) != sizeof information) return std::nullopt;
  return static_cast<int>(information.ssi_signo);
}

}  // namespace lockstep
