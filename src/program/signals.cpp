// SPDX-License-Identifier: Apache-2.0
#include "lockstep/program/signals.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/signalfd.h>
#include <thread>
#include <unistd.h>

#include "lockstep/core/clock.h"
#include "lockstep/core/error.h"

namespace lockstep {
namespace {

// A signal handler may write a lock-free atomic, and little else.
std::atomic<bool> requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void request_stop(int) { requested.store(true); }

/// The action for SIGHUP with which this process began.
struct sigaction first_hangup {};

void remember_hangup() { ::sigaction(SIGHUP, nullptr, &first_hangup); }

// These functions run before the constructors of shared libraries.
[[gnu::section(".preinit_array"), gnu::used]] void (*const before_libraries)() = remember_hangup;

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
  if (first_hangup.sa_handler != SIG_IGN) numbers.push_back(SIGHUP);
  return numbers;
}

void restore_hangup() { ::sigaction(SIGHUP, &first_hangup, nullptr); }

void listen_for_stop_requests() {
  restore_hangup();
  struct sigaction action {};
  action.sa_handler = request_stop;
  ::sigemptyset(&action.sa_mask);
  for (const int signal : stop_signals()) {
    // SA_RESTART: an interrupted read or write is restarted. SA_RESETHAND: the second SIGINT ends the
    // process.
    action.sa_flags = signal == SIGINT ? static_cast<int>(SA_RESTART | SA_RESETHAND) : SA_RESTART;
    ::sigaction(signal, &action, nullptr);
  }
}

bool stop_was_requested() { return requested.load(); }

void end_if_stop_was_requested() {
  const bool is_main = ::gettid() == ::getpid();
  if (is_main && stop_was_requested())
    throw StoppedBeforeStart("stopped on request, before the training began");
}

void wait_unless_stopped(double seconds) {
  const Clock::time_point end = after(seconds);
  while (Clock::now() < end) {
    end_if_stop_was_requested();
    std::this_thread::sleep_for(std::min<Clock::duration>(end - Clock::now(), std::chrono::milliseconds(50)));
  }
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
