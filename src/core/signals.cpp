// SPDX-License-Identifier: Apache-2.0
#include "core/signals.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <sys/signalfd.h>

#include "core/error.h"

namespace lockstep {

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
