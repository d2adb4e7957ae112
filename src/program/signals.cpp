// SPDX-License-Identifier: Apache-2.0
#include "program/signals.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/signalfd.h>
#include <unistd.h>

#include "core/error.h"

namespace lockstep {
namespace {

bool is_ignored(int number) {
  struct sigaction now {};
  return ::sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

bool catches(pid_t process, int number) {
  std::ifstream file(concat("/proc/", process, "/status"));
  uint64_t mask = 0;
  for (std::string word; file >> word;)
    if (word == "SigCgt:") file >> std::hex >> mask;
  return (mask >> (number - 1) & 1) != 0;
}

}  // namespace

std::vector<int> stop_signals() {
  std::vector<int> numbers = {SIGTERM, SIGUSR1, SIGINT};
  // A handler or a signalfd would undo nohup.
  if (!is_ignored(SIGHUP)) numbers.push_back(SIGHUP);
  return numbers;
}

Signals::Signals(const std::vector<int>& numbers) {
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

bool signal_catchers(pid_t group, int number) {
  bool found = false;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t process = std::atoi(entry.path().filename().c_str());
    if (process <= 0 || ::getpgid(process) != group || !catches(process, number)) continue;
    found |= ::kill(process, number) == 0;
  }
  return found;
}

}  // namespace lockstep
